/* The kit as a program of its own, for the tests of this folder. */
#include "check_main.h"

int main(int argc, char **argv)
{
    return heed_check_main(argc, argv);
}
