/* The fuzz target of attention: the input bytes choose a problem of the conformance kit.
 *
 * Valid    the call succeeds in two of the ways to run it, in whatever floating-point environment
 *          the host has, and both give the same bits; only rows of outputs are written; the numbers
 *          are those of the oracle.
 * Spoilt   one mistake of the kit's table is made: the call is refused with the mistake's status
 *          and a message that names the argument, and no output is touched.
 *
 * A finding ends the process with abort().
 */
#include "fuzz.h"

#include <math.h>

#include "decode.h"
#include "errors.h"
#include "run.h"

enum { MOST_BATCH = 3, MOST_GROUP = 4 };

/* ---- a problem ------------------------------------------------------------------------------- */

/* Head dims that kernels are specialised for. */
static const uint32_t dims[] = {64, 64, 128, 32, 40, 80};

/* A few rows over long caches, cut into chunks, as engines have them. */
static void make_decode(kit_spec *s, fuzz_bytes *bytes)
{
    s->q_len = 1 + fuzz_below(bytes, 3);
    s->kv_len = fuzz_below(bytes, 2600);
    s->qk_dim = s->v_dim = dims[fuzz_below(bytes, 6)];
    s->layout = fuzz_byte(bytes) & 1 ? KIT_BSHD : KIT_BHSD;
    s->features &= HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_SINK | HEED_HAS_LSE |
                   HEED_HAS_REPRODUCIBLE_CHUNKS;
    s->page_len = 16 + fuzz_below(bytes, 49);
}

/* Many rows and keys, so that windows reach over blocks and chunks; no outputs that have a number
 * for each pair of row and key. */
static void make_large(kit_spec *s, fuzz_bytes *bytes)
{
    s->batch = s->kv_heads = 1;
    s->q_heads = 1 + (fuzz_byte(bytes) & 1);
    s->qk_dim = s->v_dim = dims[fuzz_below(bytes, 6)];
    s->q_len = 1 + fuzz_below(bytes, 700) * (fuzz_byte(bytes) + 1) / 256;
    s->kv_len = 1 + fuzz_below(bytes, 3000);
    s->features &= ~(HEED_HAS_WEIGHTS | HEED_HAS_SCORES);
    if (fuzz_byte(bytes) & 1) { /* bf16 has the most code paths */
        s->q_type = s->k_type = s->v_type = s->out_type = HEED_BF16;
        s->accuracy = HEED_ACCURACY_DEFAULT;
    }
    const uint32_t plain = fuzz_byte(bytes);
    if (plain & 1) { /* without the features that rule out the fastest kernels */
        s->features &= ~(HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE);
        s->features |= plain & 2 ? HEED_HAS_WINDOW : HEED_HAS_MASK;
    }
    s->window_left = fuzz_below(bytes, 1200);
    s->window_right = (int64_t)fuzz_below(bytes, 100) - 1;
    s->page_len = 16 + fuzz_below(bytes, 113);
}

static void draw_shape(kit_spec *s, fuzz_bytes *bytes)
{
    s->batch = fuzz_rarely(bytes, 3) ? fuzz_below(bytes, MOST_BATCH + 1) : 1;
    s->kv_heads = 1 + fuzz_below(bytes, 3);
    s->q_heads = s->kv_heads * (1 + fuzz_below(bytes, MOST_GROUP));
    s->qk_dim = 1 + (uint32_t)fuzz_length(bytes, 20, 140);
    s->v_dim = fuzz_rarely(bytes, 3) ? 1 + (uint32_t)fuzz_length(bytes, 20, 140) : s->qk_dim;
    s->q_len = fuzz_rarely(bytes, 3) ? 1 : fuzz_length(bytes, 20, 70);
    s->kv_len = fuzz_length(bytes, 40, 300);
    if (s->q_len < 3 && fuzz_rarely(bytes, 32)) /* long enough to be cut into chunks */
        s->kv_len = fuzz_below(bytes, 2600);
    s->q_type = s->k_type = s->v_type = s->out_type = fuzz_type(bytes);
    if (fuzz_rarely(bytes, 4)) {
        s->k_type = fuzz_type(bytes);
        s->v_type = fuzz_type(bytes);
        s->out_type = fuzz_type(bytes);
    }
    s->accuracy = fuzz_below(bytes, 4);
}

static void draw_features(kit_spec *s, fuzz_bytes *bytes)
{
    const uint32_t some = fuzz_word(bytes);
    /* Each feature of bits 0 to 11 is set once in four; the other bits are lists and storage. */
    s->features = some & fuzz_word(bytes) & 0xfffu;
    if (fuzz_rarely(bytes, 8))
        s->features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    s->scale = ((float)fuzz_byte(bytes) - 100) / 64;
    s->softcap = (float)fuzz_byte(bytes) / 16;
    s->window_left = (int64_t)fuzz_below(bytes, 24) - 1;
    s->window_right = (int64_t)fuzz_below(bytes, 24) - 1;
    if (fuzz_rarely(bytes, 16))
        s->window_left = KIT_FAR;
    s->bias_type = fuzz_type(bytes);
    s->position = HEED_POS_TOP_LEFT + fuzz_below(bytes, 3);
    s->scores_stage = HEED_SCORES_RAW + fuzz_below(bytes, 3);
    s->page_len = 1 + fuzz_below(bytes, 20);
    s->mask_kind = fuzz_below(bytes, KIT_MASK_ISLANDS + 1);
    s->mask_form = fuzz_rarely(bytes, 4) ? fuzz_below(bytes, 16) : 0;
    s->bias_kind = fuzz_below(bytes, KIT_BIAS_FILLER + 1);
    s->bias_form = fuzz_rarely(bytes, 4) ? fuzz_below(bytes, 16) : 0;
    s->sinks = fuzz_below(bytes, KIT_SINK_INFINITE + 1);
}

/* Makes features, types and lengths agree where one needs another. */
static void make_consistent(kit_spec *s)
{
    if (s->layout == KIT_V_IN_K && (s->v_dim > s->qk_dim || s->k_type != s->v_type))
        s->layout = KIT_DRAWN;
    if (!(s->features & HEED_HAS_BIAS))
        s->features &= ~HEED_HAS_BIAS_SLOPE;
    if (!(s->features & (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI)))
        s->position = HEED_POS_UNSET;
}

static void draw_lengths(kit_spec *s, fuzz_bytes *bytes, int large)
{
    s->lens = KIT_LENS_GIVEN;
    s->unlisted = fuzz_below(bytes, 8) % 5;
    if (s->unlisted > (KIT_UNLISTED_Q | KIT_UNLISTED_KV))
        s->unlisted = KIT_UNLISTED_Q | KIT_UNLISTED_KV;
    for (uint32_t b = 0; b < s->batch; b++) {
        kit_sequence *to = &s->sequence[b];
        to->id = b + 1;
        to->q_len = (int32_t)fuzz_below(bytes, (uint32_t)s->q_len + 1);
        to->kv_len = (int32_t)fuzz_below(bytes, (uint32_t)s->kv_len + 1);
        if (s->unlisted & KIT_UNLISTED_Q)
            to->q_len = (int32_t)s->q_len;
        if (s->unlisted & KIT_UNLISTED_KV)
            to->kv_len = (int32_t)s->kv_len;
        to->offset = (int32_t)fuzz_below(bytes, 64) - 24;
        if (large)
            to->offset += (int32_t)fuzz_below(bytes, (uint32_t)s->kv_len + 1);
        if (fuzz_rarely(bytes, 32))
            to->offset = fuzz_byte(bytes) & 1 ? INT32_MIN : INT32_MAX;
    }
    s->storage = fuzz_byte(bytes) & 1 ? fuzz_below(bytes, KIT_STORAGES) : KIT_PADDED_ROWS;
    s->pages = fuzz_below(bytes, KIT_PAGES_DRAWN + 1);
}

/* Mostly plain or growing numbers, for which kernels take different paths; the levels of growing
 * ones raise the weights by 2^3 to 2^12, or far more. */
static void draw_values(kit_spec *s, fuzz_bytes *bytes, int large)
{
    static const uint32_t period[] = {16, 64, 128, 256, 512, 1024, 5, 100};
    const double scale = s->features & HEED_HAS_SCALE ? fabs((double)s->scale) : 1;
    const int can_rise = s->qk_dim >= 8 && scale > 0.01; /* less would need levels beyond f16 */
    s->seed = fuzz_word(bytes);
    s->poison = fuzz_below(bytes, KIT_POISONS);
    s->values = KIT_SPREAD;
    s->spread = (float)(1 << (fuzz_byte(bytes) & 1 ? fuzz_below(bytes, 6) : 0));
    s->period = period[fuzz_below(bytes, 8)];
    s->lone = fuzz_below(bytes, 4);
    s->rise = 3 + (float)fuzz_below(bytes, 10);
    if (fuzz_rarely(bytes, 8))
        s->rise *= (float)(8 << fuzz_below(bytes, 4));
    const uint32_t rising = KIT_STEPS + fuzz_below(bytes, 5);
    if (fuzz_rarely(bytes, large ? 2 : 3) && can_rise)
        s->values = rising;
    else if (fuzz_rarely(bytes, large ? 8 : 4))
        s->values = fuzz_byte(bytes) & 1 ? KIT_WILD : fuzz_below(bytes, KIT_SPREAD);
    s->odd = fuzz_rarely(bytes, 16) ? fuzz_below(bytes, KIT_ODD_INF_V + 1) : KIT_ODD_NOTHING;
}

/* Sometimes keys or values or both are codes; their rows are then whole blocks. */
static void draw_codes(kit_spec *s, fuzz_bytes *bytes)
{
    const uint32_t both = fuzz_below(bytes, 4);
    if (both != 0)
        s->k_type = HEED_I8 + fuzz_below(bytes, HEED_IQ4_NL - HEED_I8 + 1);
    if (both != 1)
        s->v_type = both == 3 ? s->k_type : HEED_I8 + fuzz_below(bytes, HEED_IQ4_NL - HEED_I8 + 1);
    const uint32_t k = heed_block_len(s->k_type), v = heed_block_len(s->v_type);
    s->qk_dim = (s->qk_dim + k - 1) / k * k;
    s->v_dim = (s->v_dim + v - 1) / v * v;
    s->k_scales = (kit_scales){fuzz_below(bytes, KIT_SCALES), fuzz_byte(bytes) & 1};
    s->v_scales = (kit_scales){fuzz_below(bytes, KIT_SCALES), fuzz_byte(bytes) & 1};
    s->accuracy = fuzz_below(bytes, 5);
    make_consistent(s);
}

/* Ranges, key blocks and masks that begin late. They are drawn last, and bytes of zeros choose
 * none. */
static void draw_lists(kit_spec *s, fuzz_bytes *bytes)
{
    static const uint32_t most[KIT_RANGES_KINDS] = {8, 1, 1, 1, 1, 1, 2, 8, 1, 8, 8};
    static const uint32_t sizes[] = {1, 3, 8, 16, 33, 64, 100, 128};
    const uint32_t some = fuzz_byte(bytes);
    s->lists = some & fuzz_byte(bytes) & (KIT_LISTS_RANGES | KIT_LISTS_BLOCKS);
    if (s->lists & KIT_LISTS_RANGES) {
        s->ranges_kind = fuzz_below(bytes, KIT_RANGES_KINDS);
        s->ranges_form = fuzz_below(bytes, 8);
        const uint32_t n = most[s->ranges_kind], free = s->ranges_kind == KIT_RANGES_TREE ? 1 : 8;
        s->n_ranges = n > 1 && n == free ? 1 + fuzz_below(bytes, 8) : n + fuzz_below(bytes, 9 - n);
    }
    if (s->lists & KIT_LISTS_BLOCKS) {
        s->blocks_kind = fuzz_below(bytes, KIT_BLOCKS_KINDS);
        s->blocks_form = fuzz_below(bytes, 8);
        s->block_rows = sizes[fuzz_below(bytes, 8)];
        s->block_keys = sizes[fuzz_below(bytes, 8)];
    }
    if (some & 4 && s->features & (HEED_HAS_MASK | HEED_HAS_BIAS)) {
        s->features |= HEED_HAS_MASK_FROM;
        s->from_kind = fuzz_below(bytes, 5);
    }
}

static kit_spec draw(fuzz_bytes *bytes)
{
    kit_spec s = {.batch = 0};
    draw_shape(&s, bytes);
    draw_features(&s, bytes);
    const uint32_t rare = fuzz_below(bytes, 100);
    const int large = rare == 99;
    s.layout = fuzz_byte(bytes) & 1 ? fuzz_below(bytes, KIT_LAYOUTS) : KIT_DRAWN;
    if (large)
        make_large(&s, bytes);
    else if (rare >= 95)
        make_decode(&s, bytes);
    make_consistent(&s);
    draw_lengths(&s, bytes, large);
    draw_values(&s, bytes, large);
    if (!large) /* predicates are evaluated for every row and key */
        draw_lists(&s, bytes);
    if (fuzz_rarely(bytes, 4))
        draw_codes(&s, bytes);
    return s;
}

static const kit_spec *current;

void fuzz_describe(FILE *out)
{
    const kit_spec *s = current;
    if (!s)
        return;
    fprintf(out, "features 0x%llx heads %u/%u dims %u, %u types %u %u %u %u, bias %u\n",
            (unsigned long long)s->features, s->q_heads, s->kv_heads, s->qk_dim, s->v_dim,
            s->q_type, s->k_type, s->v_type, s->out_type, s->bias_type);
    fprintf(out, "scales of k %u %u, of v %u %u\n", s->k_scales.kind, s->k_scales.zeros,
            s->v_scales.kind, s->v_scales.zeros);
    fprintf(out, "scale %g softcap %g window %lld, %lld position %u stage %u accuracy %u\n",
            (double)s->scale, (double)s->softcap, (long long)s->window_left,
            (long long)s->window_right, s->position, s->scores_stage, s->accuracy);
    fprintf(out, "layout %u storage %u (pages of %u, %u) mask %u as %u, bias %u as %u, sinks %u\n",
            s->layout, s->storage, s->page_len, s->pages, s->mask_kind, s->mask_form, s->bias_kind,
            s->bias_form, s->sinks);
    fprintf(out, "values %u odd %u spread %g rise %g of %u, lone %u, poison %u, seed %llu\n",
            s->values, s->odd, (double)s->spread, (double)s->rise, s->period, s->lone, s->poison,
            (unsigned long long)s->seed);
    fprintf(out, "lists %u: ranges %u of %u as %u, blocks %u of %u x %u as %u, from %u\n", s->lists,
            s->n_ranges, s->ranges_kind, s->ranges_form, s->blocks_kind, s->block_rows,
            s->block_keys, s->blocks_form, s->from_kind);
    fprintf(out, "batch %u, q_len %lld, kv_len %lld, unlisted %u\n", s->batch, (long long)s->q_len,
            (long long)s->kv_len, s->unlisted);
    for (uint32_t b = 0; b < s->batch; b++)
        fprintf(out, "  sequence %u: q_len %d, kv_len %d, offset %d\n", b, s->sequence[b].q_len,
                s->sequence[b].kv_len, s->sequence[b].offset);
}

/* ---- valid, and spoilt ----------------------------------------------------------------------- */

/* Compares with the oracle; of large problems only some rows, in the first tile and spread over the
 * rest. */
static void check(kit_problem *p, kit_outcome *outcome)
{
    if (p->spec.q_len > 70) {
        p->reference.every = p->spec.q_len / 10 + 5;
        p->reference.some = 3;
    }
    if (p->spec.values == KIT_WILD)
        kit_check_memory(p, outcome);
    else
        kit_check_elements(p, outcome);
}

static kit_way draw_way(fuzz_bytes *bytes)
{
    static const int how[] = {KIT_BY_CALL,  KIT_BY_CONTEXT,  KIT_BY_WORKSPACE,
                              KIT_BY_PARTS, KIT_BY_EXECUTOR, KIT_BY_ONE_PART};
    return (kit_way){.how = how[fuzz_below(bytes, 6)],
                     .n_parts = 1 + fuzz_below(bytes, 5),
                     .more = fuzz_below(bytes, 3),
                     .more_keys = fuzz_rarely(bytes, 4) ? fuzz_below(bytes, 4000) : 0,
                     .mxcsr = fuzz_rarely(bytes, 4) ? fuzz_mxcsr(bytes) : 0,
                     .garbage = (int)fuzz_byte(bytes),
                     .error = (int)fuzz_byte(bytes) & 1};
}

static void spoilt(heed_context *context, const kit_spec *spec, fuzz_bytes *bytes,
                   kit_outcome *outcome)
{
    const uint32_t which = fuzz_below(bytes, (uint32_t)kit_mistakes());
    kit_problem p;
    if (kit_build(&p, spec, fuzz_byte(bytes) & 1) == 0)
        kit_refuses(context, &p, which, fuzz_word(bytes), outcome);
    kit_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_bytes bytes = {data, data + size};
    kit_outcome outcome = {.verdict = KIT_PASSED};
    const int spoil = fuzz_rarely(&bytes, 4);
    heed_context *context = fuzz_context(&bytes);
    const kit_spec spec = draw(&bytes);
    current = &spec;
    if (spoil) {
        spoilt(context, &spec, &bytes, &outcome);
    } else {
        kit_twice twice = {.spec = {spec, spec}, .check = check};
        twice.side = fuzz_byte(&bytes) & 1 ? GUARD_LOW : GUARD_HIGH;
        twice.way[0] = draw_way(&bytes);
        twice.way[1] = draw_way(&bytes);
        /* Not with scores: they show hidden keys too, whose memory may be another without them. */
        if (fuzz_rarely(&bytes, 4) && !(spec.features & HEED_HAS_SCORES))
            kit_without_optional(&twice.spec[1]);
        kit_conform_twice(context, &twice, &outcome);
    }
    fuzz_judge(&outcome, context);
    current = NULL;
    return 0;
}
