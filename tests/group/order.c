/* Receives of one tag get its messages in the order sent, also when a message is posted between two
 * looks of the receiver: here while it copies a message of another tag to a page that it may not
 * write to until the sender has posted. One thread is both ranks. */
#define _GNU_SOURCE
#include "../check.h"

#include <heed/heed.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, TAG = 7, OTHER_TAG = 8 };

static heed_transport from, to;
static heed_request sent[3];
static const int message[3] = {1, 2, 3};
static void *page;
static int faults;

static void post(int n, uint32_t tag)
{
    heed_error why;
    if (from.send(from.user, 1, tag, &message[n], sizeof message[n], &sent[n], &why) != HEED_OK)
        abort();
}

static void at_fault(int signal)
{
    (void)signal;
    if (faults++ || mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        abort();
    post(0, TAG);
}

static void listen(uint32_t tag, void *data, heed_request *request)
{
    heed_error why;
    CHECK_OK(to.receive(to.user, 0, tag, data, sizeof(int), request, &why));
}

static int arrived(heed_request *request)
{
    heed_error why;
    uint32_t done = 0;
    size_t bytes;
    CHECK_OK(to.test(to.user, request, &done, &bytes, &why));
    return (int)done;
}

int main(void)
{
    const struct sigaction action = {.sa_handler = at_fault};
    heed_group_threads *group = NULL;
    heed_request a, b, other;
    int first = 0, second = 0;
    from.struct_size = to.struct_size = sizeof from;
    CHECK_OK(heed_group_threads_create(2, &group));
    CHECK_OK(heed_group_threads_transport(group, 0, &from));
    CHECK_OK(heed_group_threads_transport(group, 1, &to));
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || sigaction(SIGSEGV, &action, NULL) != 0)
        return 1;
    listen(TAG, &first, &a);
    listen(OTHER_TAG, page, &other);
    listen(TAG, &second, &b);
    post(2, OTHER_TAG);
    CHECK(!arrived(&b), "the second receive has message %d, and the first has none", second);
    CHECK(faults == 1 && *(int *)page == 3, "%d faults", faults);
    CHECK(arrived(&a) && first == 1, "the first receive has message %d", first);
    post(1, TAG);
    CHECK(arrived(&b) && second == 2, "the second receive has message %d", second);
    CHECK(arrived(&other), "the other tag");
    heed_group_threads_release(group);
    munmap(page, PAGE);
    return checks_end();
}
