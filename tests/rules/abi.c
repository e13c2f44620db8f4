/* The layout of the public structs must not change, since programs and plugins were compiled with
 * it: every size and offset is compared with the table in abi_layout.inc. */
#include <stddef.h>
#include <stdio.h>

#include <heed/backend.h>
#include <heed/heed.h>

typedef struct row {
    const char *what;
    size_t is, was;
} row;

#define SIZE(type, bytes) {"sizeof(" #type ")", sizeof(type), bytes},
#define MEMBER(type, member, at) {"offsetof(" #type ", " #member ")", offsetof(type, member), at},
static const row layout[] = {
#include "abi_layout.inc"
};

int main(void)
{
    size_t n = sizeof layout / sizeof *layout, bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (layout[i].is != layout[i].was) {
            printf("%s is %zu, was %zu\n", layout[i].what, layout[i].is, layout[i].was);
            bad++;
        }
    }
    printf("%zu rows, %zu changed\n", n, bad);
    return bad != 0;
}
