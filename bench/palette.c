/* Tells a process the shape of AMX tiles where the hypervisor does not.
 *
 * CPUID leaf 1DH describes tile palette 1. Some hypervisors let guests use AMX but answer that leaf
 * with zeros. oneDNN, and with it PyTorch and OpenVINO, then configures tiles without rows, and the
 * first tile instruction is invalid. When this library is loaded before such a library (with
 * LD_PRELOAD; bench/peers does it if the leaf is empty), it makes Linux turn CPUID into a fault and
 * answers as the CPU would, with leaf 1DH filled in. Computations run as always, since they contain
 * no CPUID.
 *
 * Limits   Linux on x86-64 with CPUID faulting. Threads that exist already are not affected. A
 *          program that sets its own handler of SIGSEGV afterwards undoes it.
 * Source   Intel SDM volume 2, CPUID, leaves 1DH and 1EH; arch_prctl(2), ARCH_SET_CPUID.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, MAX_PALETTE = 1 };

static struct sigaction before;

static void permit_cpuid(long permitted)
{
    syscall(SYS_arch_prctl, SET_CPUID, permitted);
}

/* Leaf 1DH, subleaf 1: 8 KiB of tiles, 1 KiB a tile, 64 bytes a row, 8 tiles, 16 rows. Leaf 1EH: 16
 * columns of K, 64 bytes of N. */
static void answer(unsigned leaf, unsigned subleaf, unsigned r[4])
{
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    if (leaf == 0x1d && subleaf == 0) {
        r[0] = MAX_PALETTE;
    } else if (leaf == 0x1d && subleaf == 1) {
        r[0] = 8192 | 1024u << 16;
        r[1] = 64 | 8u << 16;
        r[2] = 16;
    } else if (leaf == 0x1e && subleaf == 0) {
        r[1] = 16 | 64u << 8;
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)g[REG_RIP];
    unsigned r[4];
    /* A CPUID fault arrives as a general protection fault: without an address, code SI_KERNEL. */
    if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) {
        sigaction(number, &before, NULL); /* another fault: it happens again, for the old handler */
        return;
    }
    permit_cpuid(1);
    answer((unsigned)g[REG_RAX], (unsigned)g[REG_RCX], r);
    permit_cpuid(0);
    g[REG_RAX] = r[0];
    g[REG_RBX] = r[1];
    g[REG_RCX] = r[2];
    g[REG_RDX] = r[3];
    g[REG_RIP] += 2;
}

__attribute__((constructor)) static void fill_palette(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24))
        return; /* there are no tiles */
    if (__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) && a >= MAX_PALETTE)
        return; /* the leaf is not empty */
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, &before) == 0)
        permit_cpuid(0);
}
