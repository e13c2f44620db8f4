/* The kit as a program of its own, which runs the conformance tests. */
#include "check_main.h"

int main(int argc, char **argv)
{
    return heed_check_main(argc, argv);
}
