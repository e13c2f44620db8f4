/* Linear layers with thousands of different numbers of inputs: what oneDNN makes for a layer is
 * freed with it, so that memory does not grow with the number of layers that there have been. Some
 * are only asked for, others made and run one by one, and others held together. */
#include "../check.h"

#include <dlfcn.h>
#include <heed/backend.h>
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 3000, HELD = 1100, OUT = 3, ROWS = 2 };

static heed_context *onednn_context(void)
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = "onednn"};
    heed_context *context = NULL;
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("%s\n", heed_last_error());
        exit(1);
    }
    return context;
}

static heed_linear_desc desc_of(uint32_t in_dim)
{
    return (heed_linear_desc){.struct_size = sizeof(heed_linear_desc),
                              .in_dim = in_dim,
                              .out_dim = OUT,
                              .x_type = HEED_F32,
                              .w_type = HEED_F32,
                              .y_type = HEED_F32};
}

/* Eighths: their products and the sums of 3000 of them are exact in f32. */
static float input(int64_t i)
{
    return (float)(i * i % 17 - 8) / 8;
}

static float x[ROWS][DIMS], w[OUT][DIMS];

static heed_linear *make(heed_context *context, uint32_t in_dim)
{
    heed_linear_desc desc = desc_of(in_dim);
    const heed_const_view weight = {w, {1, DIMS}};
    heed_linear *linear = NULL;
    heed_status st = heed_linear_create(context, &desc, &weight, NULL, &linear);
    CHECK(st == HEED_OK, "%u inputs: %s", in_dim, heed_last_error());
    return linear;
}

static void run(const heed_linear *linear, uint32_t in_dim)
{
    float y[ROWS][OUT] = {{0}};
    const heed_linear_args args = {
        .struct_size = sizeof args, .rows = ROWS, .x = {x, {DIMS, 1}}, .y = {y, {OUT, 1}}};
    if (!linear)
        return;
    CHECK(heed_linear_run(linear, &args, NULL, 0) == HEED_OK, "%u inputs: %s", in_dim,
          heed_last_error());
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < OUT; c++) {
            double sum = 0;
            for (uint32_t i = 0; i < in_dim; i++)
                sum += (double)x[r][i] * (double)w[c][i];
            CHECK((double)y[r][c] == sum, "%u inputs: row %d, column %d is %g, not %g", in_dim, r,
                  c, (double)y[r][c], sum);
        }
}

/* AddressSanitizer keeps freed memory for a while, so that the process's memory says nothing. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEPS_WHAT_IS_FREED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define KEEPS_WHAT_IS_FREED 1
#endif
#ifndef KEEPS_WHAT_IS_FREED
#define KEEPS_WHAT_IS_FREED 0
#endif

/* Bytes of memory that the process holds. */
static double resident(void)
{
    double pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*f %lf", &pages) != 1)
        CHECK(0, "/proc/self/statm cannot be read");
    if (file)
        fclose(file);
    return pages * 4096;
}

/* The summary in the module's table, as it is before the first context. */
static const char *summary;
static char summary_before[256];

/* What the plugin offers to libraries of this ABI and of another. */
static void check_hosts(const char *module)
{
    const heed_backend *(*entry)(uint32_t, size_t);
    void *handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL, "%s", dlerror());
    if (!handle)
        return;
    *(void **)&entry = dlsym(handle, "heed_backend_entry");
    const heed_backend *now = entry(HEED_BACKEND_ABI, sizeof(heed_backend));
    CHECK(!entry(HEED_BACKEND_ABI - 1, sizeof(heed_backend)), "a table for another ABI");
    CHECK(now && now->n_attn && now->n_linear, "no kernels");
    summary = now->summary;
    snprintf(summary_before, sizeof summary_before, "%s", summary);
}

int main(int argc, char **argv)
{
    static heed_linear *held[HELD];
    double middle = 0;
    for (int64_t i = 0; i < DIMS; i++) {
        for (int r = 0; r < ROWS; r++)
            x[r][i] = input(3 * i + r);
        for (int c = 0; c < OUT; c++)
            w[c][i] = input(5 * i + c);
    }
    if (argc > 1)
        check_hosts(argv[1]);

    heed_context *asking = onednn_context();
    for (uint32_t n = 1; n <= HELD; n++) {
        heed_linear_desc desc = desc_of(DIMS + n);
        heed_error why = {""};
        CHECK(heed_linear_supported(asking, &desc, &why) == HEED_OK, "%u inputs, asked: %s",
              DIMS + n, why.text);
    }

    /* Steps of 1009: no number of inputs is close to the one before it. By the middle oneDNN's own
     * cache of 1024 primitives is full. */
    heed_context *context = onednn_context();
    for (uint32_t n = 0; n < DIMS; n++) {
        const uint32_t in_dim = n * 1009 % DIMS + 1;
        heed_linear *linear = make(context, in_dim);
        run(linear, in_dim);
        heed_linear_release(linear);
        if (n == DIMS / 2)
            middle = resident();
    }
    const double grown = (resident() - middle) / (1 << 20);
    printf("%d numbers of inputs, %.1f MiB more than after half of them\n", DIMS, grown);
    CHECK(KEEPS_WHAT_IS_FREED || grown < 8, "memory grows with the layers that have been");

    const double before = resident();
    for (uint32_t n = 0; n < HELD; n++)
        held[n] = make(context, n + 1);
    printf("%d layers held: %.1f KiB each, panels of %.1f among them\n", HELD,
           (resident() - before) / HELD / 1024, HELD / 2 * 64 * 4 / 1024.0);
    for (uint32_t n = 0; n < HELD; n++) {
        run(held[n], n + 1);
        heed_linear_release(held[n]);
    }
    heed_context_release(asking);
    heed_context_release(context);
    CHECK(!summary || !strcmp(summary, summary_before),
          "a context has changed the table's text, which others may be reading");
    return checks_end();
}
