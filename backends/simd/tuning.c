/* What is worth doing on which kind of CPU. Compiled for the baseline CPU. */
#include <stdlib.h>

#include "simd.h"

/*
 * One line for each choice, with the measurement that it comes from. Kinds are told apart by vendor
 * and by what a CPU has, never by family and model, which hypervisors mask.
 */
static heed_simd_tuning choices(const heed_cpu *cpu, uint32_t lanes, uint32_t built)
{
    const int amd = strncmp(cpu->vendor, "AuthenticAMD", 12) == 0;
    const int intel = strncmp(cpu->vendor, "GenuineIntel", 12) == 0;
    const int l1_of_48k = cpu->l1d_bytes >= 48u << 10; /* AMD: Zen 5, not Zen 4 */
    const int zen4 = amd && !l1_of_48k, zen5 = amd && l1_of_48k;
    const int zen3 = zen4 && !(cpu->isa & HEED_ISA_AVX512F); /* or before it */
    return (heed_simd_tuning){
        .lanes = lanes,
        /* Decode from memory reaches 30 % of its read rate with prefetches to an L1 of 32 KiB, 60 %
         * with prefetches to L2 (Zen 4). With 48 KiB L1 is the better by a little (Zen 5). */
        .prefetch_l1 = (amd || lanes == 8) && l1_of_48k,
        /* One head of 1 to 12 rows, relative to block by block: 16-bit 0.5 to 0.75 of three rows, f32 of
         * three and more 0.65 to 1.04 by AVX-512, 0.56 to 0.89 by AVX2. Relative to what the CPU's own
         * prefetching of such a stream gives, from 8 MiB on: 0.5 to 0.9 when that is at its slowest, up to
         * 1.4 of one and two rows of 16-bit when it is at its fastest; it changes by a factor of two from
         * process to process and within one. From 8 and 32 KiB ahead within noise of 16. Into L1 as on a
         * Zen 5, 1.4 to 2.4; by prefetchnta 1.1 to 2.5 (Zen 4). */
        .fetched_l2 = zen4,
        /* Relative to block by block, cold: 80 to 160 dims 0.48 to 1.0 of the time, 192 to 512 0.55 to
         * 0.98; heads side by side of 96 and 256 dims 0.41 to 0.97, in pages 0.66 to 1.14 (Zen 4). By
         * AVX-512, 96 dims 0.72 to 0.84, 256 dims 0.95 to 1.02, heads side by side 0.68 to 0.72 and 0.81
         * to 0.91; by AVX2 80, 96 and 256 dims 0.79 to 1.03, heads side by side 0.65 to 0.90 and once 1.03
         * (Intel with AMX). 80 to 240 dims, no multiples of 64: one head 0.55 to 1.09, heads side by side
         * 0.40 to 0.95, in pages 0.44 to 0.88; 192, 256 and 512: 16-bit 0.97 to 1.4 and side by side 0.84 to
         * 1.27, f32 0.87 to 1.13, but in pages 0.75 to 1.04; by AVX2 0.4 to 0.97, f32 of four rows up to
         * 1.36 (Zen 5). */
        .any_dims = zen4 || intel ? HEED_RUNS_ANY
                    : zen5        ? HEED_RUNS_UNEVEN
                                  : HEED_RUNS_USUAL,
        /* One head, cold, with large and with small pages of memory, relative to block by block: by AVX-512
         * f32 and pairs of 3 and 4 rows 0.84 to 0.97, f32 of 64 dims and 1 and 2 rows 0.91 to 1.05; by AVX2
         * f32 of 128 dims 0.88 to 0.94 of 4 rows and 0.91 to 1.0 of 8, of 64 dims 0.82 to 0.95. Relative to
         * crosswise by AVX-512: f16 0.58 to 0.93, pairs of 5 rows and more 0.65 to 0.98, f32 of 64 dims 0.70
         * to 0.97, of 128 dims 0.93 of 5 rows, but 1.14 to 1.42 of 8 and 12. In pages relative to crosswise,
         * 16-bit see below, f32 up to 1.4, pairs 1.2 (Zen 5). */
        .fetched = zen5,
        /* Relative to crosswise, 16-bit by AVX-512: 4 rows of 64 dims 0.82 to 1.05, 8 rows 0.79 to 1.03; of
         * 128 dims 3 and 4 rows 0.95 to 1.2 (with two threads 4 rows 0.93 to 0.96), 8 rows 0.84 to 1.05; 3 rows
         * of 64 dims 0.98 to 1.26; f32 up to 1.3, pairs up to 1.5; by AVX2 0.93 to 1.1 (Zen 5). */
        .fetched_beside = zen5 && lanes == 16 ? 4 : 0,
        /* Crosswise relative to in order, 16-bit in pages of 16 by AVX-512, from memory: one row of 64 dims 0.79
         * to 0.94, 2 rows 0.88 to 1.02, 3 rows 1.0 to 1.14; 1 to 3 rows of 128 dims 0.77 to 0.94, with two
         * threads 1.01 and 1.02; from the caches 1.10 to 1.18; by AVX2 0.86 to 1.17 (Zen 5). */
        .fetched_paged = zen5 && lanes == 16 ? 2 : 0,
        /* Chosen blocks of 64 keys take 0.85 (f32) and 0.71 to 0.81 (bf16) of the time that they take
         * block by block by AVX-512, 0.72 and 0.63 by AVX2, and crosswise more than block by block;
         * of 256 keys 0.82 to 1 (Zen 5). */
        .hops = amd && !zen3,
        /* On an Intel with AMX 70 to 82 % of the read rate become 84 to 90 % with every type and
         * layout, and 59 to 69 % become 85 to 89 % with heads side by side. On AMD, the time
         * relative to that of the other orders. Zen 3: f32 0.61 to 0.79, 16-bit 0.66 to 0.94 (3
         * rows of bf16 1.07), heads side by side 0.64 to 0.93. Zen 4: one head of f32 of 8 rows and
         * more 0.96 to 1.16 of what runs in order take by AVX-512; heads side by side of 5 rows and
         * more 0.49 to 0.77 by AVX-512 and 0.60 to 0.93 by AVX2, of fewer rows 0.95 to 1.54; 16-bit up
         * to 1.7. Zen 5 by AVX-512: heads side by side and pages f32 0.52 to 1.04, 16-bit 0.55 to 0.97;
         * one head of 8 rows and more, see `fetched`, 16-bit in pages, see `fetched_paged`. By AVX2:
         * heads side by side f32 0.64 to 0.90, 16-bit 0.45 to 0.76; pages f32 0.76 to 1.07, 16-bit 0.55
         * to 0.91; one head f32 0.85 to 1.13, 16-bit of 8 rows 1.02 to 1.08 of what runs in order take. */
        .cross_f32 = intel || zen3         ? (heed_cross){1, 1, 1}
                     : zen4 && lanes == 16 ? (heed_cross){0, 5, 8}
                     : zen4                ? (heed_cross){0, 5, 0}
                     : zen5 && lanes == 16 ? (heed_cross){8, 1, 1}
                     : zen5                ? (heed_cross){0, 1, 1}
                                           : (heed_cross){0, 0, 0},
        .cross_half = intel || zen3         ? (heed_cross){1, 1, 1}
                      : zen5 && lanes == 16 ? (heed_cross){0, 1, 1}
                      : zen5                ? (heed_cross){0, 1, 8}
                                            : (heed_cross){0, 0, 0},
        /* Zen 5: heads side by side 0.61 to 0.90, pages 0.72 to 1.03. Not measured elsewhere. */
        .cross_pairs = zen5 ? (heed_cross){0, 1, 1} : (heed_cross){0, 0, 0},
        /* On AMD a copy of V takes longer than it saves, with 32 KiB of L1 as with 48. */
        .pack_v = !amd,
        /* Rows 4 KiB and more apart, relative to copying their blocks: 0.95 to 0.98 by AVX-512 and
         * AVX2 (Intel, 1024 to 8192 inputs of f32); 0.99 of 1024 and 2048, 0.96 of 4096 (Zen 5). Not measured
         * on a Zen 4. */
        .x_any_sets = intel || zen5,
        /* Relative to all rows meeting a block before the next one: 0.94 to 0.99 of 384 inputs, 0.95 to 1.02
         * of 768, 0.98 to 1.0 of 1024, 0.99 to 1.03 of 1536, 1.07 of 2048; by AVX2 0.98 to 1.0 (Intel Ice
         * Lake, f32); 0.99 to 1.0 (Zen 5). Not measured on a Zen 4. */
        .linear_blocks = intel ? 4 : 1,
        /* Relative to 4 panels at a time, one row from memory: f16 0.88 to 0.90, bf16 0.84 to 0.90, f32 0.94 to
         * 0.98 (Intel Ice Lake, 1 and 2 threads); 1.0 to 1.04 (Zen 5). Not measured on a Zen 4. */
        .linear_streams = intel ? 8 : 4,
        /* Relative to the same panels a little ahead, from memory: 2, 4 and 8 rows of f16 0.83 to 0.86, of f32
         * 0.79 to 0.82. From L3, where a model with layers of that size hardly is, 2 and 4 rows of f16 1.16 to
         * 1.22, 8 rows 0.99 to 1.02; one row of f16 from memory 0.96 and from L3 1.5 (Intel Ice Lake).
         * On a Zen 5 1.12 to 1.2 of 2 and 4 rows, and of 8 less than by linear_ahead_of. */
        .linear_far_bytes = intel ? INT64_C(8) << 20 : INT64_MAX,
        /* The best on a Zen 4, where more were worse, is the latency of memory times its speed over the
         * streams. 1536 relative to that: 16-bit of 1 and 2 rows 0.94 to 0.99, of 4 and 7 rows 0.88 to 0.92,
         * f32 of 1 and 2 rows 1.0, of 4 and 7 rows 0.94 to 0.97, by AVX2 0.96 and 1.0; 3072 relative to 1536
         * 0.98 to 1.03 (Intel Ice Lake). 1536 and 2048 relative to 768 and 512, from memory and one row: f32
         * 1.0, 16-bit 0.89 to 0.9, by AVX2 0.97 and 0.79 to 0.84; from L2 and L3 0.77 to 1.09; 16-bit 4096 and
         * 6144 relative to 2048 1.07 to 1.08 (Zen 5). */
        .linear_ahead_word = intel || zen5 ? 1536 : 768,
        .linear_ahead_half = intel  ? 1536
                             : zen5 ? 2048
                                    : 512,
        /* More rows leave registers for fewer streams: 2, 4, 6 and 8 rows of f32 relative to 768 bytes in each
         * 0.97, 0.92, 0.82 and 0.74, of f16 relative to 512 0.87, 0.76, 0.61 and 0.59, by AVX2 2 and 4 rows
         * 0.89 and 0.75, 0.75 and 0.42; from L2 0.97 to 1.05 (Zen 5). Not measured elsewhere. */
        .linear_ahead_of = zen5 ? 4 : 0,
        .dot_bf16 = built & HEED_BUILT_DOT && cpu->fast & HEED_ISA_AVX512_BF16,
        /* AVX-512 needs vpdpbusd. What replaces it on AVX2 takes 0.76 (q4_0), 1.0 (q8_0) and 1.08
         * (i8) of the time of exact products (Zen 4, decode of 8192 keys). */
        .dot_int8 = built & HEED_BUILT_INT8 && (lanes == 8 || cpu->isa & HEED_ISA_AVX512_VNNI),
        /* One instruction in place of three or four: 0.75 (i8, q8_0) and 0.71 (q4_0) of the time of
         * exact products (Zen 5, decode of 8192 keys). */
        .dot_vnni = built & HEED_BUILT_VNNI && cpu->isa & HEED_ISA_AVX_VNNI,
        /* Four rows of 128 dims by AVX-512, relative to factors read one by one among the codes: from L2
         * 0.84 (q4_1) to 0.91 (iq4_nl), q8_0 and q4_0 0.89; cold 0.96 and 0.88; accuracy int8 0.85 to 0.93,
         * cold 0.96 and 0.93; by AVX2, accuracy int8, 0.98 (Intel, AMX hidden). Two shuffles, of the one port
         * that all codes need, and a conversion become one load. On AMD, which has more such ports, f16
         * factors read first gained nothing. */
        .factors_first = intel,
        /* Heavy AVX-512 after scalar code stalls for 3 to 16 us (Intel with AMX). */
        .small_avx2 = lanes == 16 && !amd,
    };
}

heed_status heed_simd_open(const heed_cpu *cpu, uint32_t lanes, uint32_t built,
                           const heed_simd_coded *coded, const void **machine)
{
    heed_simd_tuning *tuning = malloc(sizeof *tuning);
    if (!tuning)
        return HEED_ERR_NOMEM;
    *tuning = choices(cpu, lanes, built);
    tuning->coded = coded;
    *machine = tuning;
    return HEED_OK;
}

void heed_simd_close(const void *machine)
{
    free((void *)(uintptr_t)machine); /* from heed_simd_open; constant only for its readers */
}
