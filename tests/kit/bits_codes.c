/* The numerics contract of keys and values in codes: the checks of bits.c over all formats and over
 * all kinds of scales that mean the same in any storage. Scales of groups of keys are left out,
 * because such groups begin anew with each page. */
#include "bits.h"
#include "cases.h"

#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

void kit_bits_codes_cases(kit_list *list)
{
    static const struct {
        const char *name;
        int32_t rows, keys;
        kit_spec spec;
    } table[] = {
        {"prefill", 37, 61, {.features = HEED_HAS_CAUSAL | HEED_HAS_SINK | HEED_HAS_LSE}},
        {"decode", 1, 1101, {.features = HEED_HAS_LSE, .layout = KIT_BSHD}},
        {"few_paged",
         5,
         300,
         {.features = HEED_HAS_CAUSAL | HEED_HAS_LSE, .storage = KIT_PAGED_RAGGED, .page_len = 16}},
        {"masked", 20, 190, {.features = HEED_HAS_MASK | HEED_HAS_LSE, .layout = KIT_BSHD}},
    };
    static const uint32_t type[][2] = {{HEED_Q8_0, HEED_Q4_0},      {HEED_I8, HEED_I8},
                                       {HEED_F8_E4M3, HEED_IQ4_NL}, {HEED_U4, HEED_F16},
                                       {HEED_Q4_1, HEED_U8},        {HEED_BF16, HEED_Q5_1},
                                       {HEED_Q5_0, HEED_F8_E4M3}};
    static const uint32_t scales[][2] = {{KIT_SCALES_TOKEN, KIT_SCALES_GROUPS},
                                         {KIT_SCALES_CHANNELS, KIT_SCALES_TOKEN},
                                         {KIT_SCALES_IN_LINE, KIT_SCALES_PAIRS},
                                         {KIT_SCALES_GROUPS, KIT_SCALES_IN_LINE},
                                         {KIT_SCALES_HEAD, KIT_SCALES_TENSOR}};
    for (size_t n = 0; n < COUNT(table); n++)
        for (size_t k = 0; k < KIT_BITS_CHECKS; k++)
            for (size_t t = 0; t < COUNT(type); t++) {
                kit_case c = {.run = kit_bits_checks[k].run, .spec = table[n].spec};
                kit_spec *s = &c.spec;
                const size_t kinds = (n + k + t) % COUNT(scales);
                if ((n + k + t) % 2)
                    continue;
                s->k_type = type[t][0];
                s->v_type = type[t][1];
                s->q_type = s->out_type = s->bias_type = HEED_F32 + (uint32_t)(n + t) % 3;
                s->k_scales = (kit_scales){scales[kinds][0], 1};
                s->v_scales = (kit_scales){scales[kinds][1], (uint32_t)t % 2};
                s->accuracy = t == 0 && k % 2 ? HEED_ACCURACY_INT8 : HEED_ACCURACY_DEFAULT;
                s->batch = 3;
                s->q_heads = table[n].keys > 500 ? 2 : 4;
                s->kv_heads = 2;
                s->qk_dim = s->v_dim = n % 2 ? 64 : 32;
                kit_bits_sequences(s, table[n].rows, table[n].keys);
                c.quick = t == 0 && n == 0;
                snprintf(c.name, sizeof c.name, "codes/bits_%s_%s_%s_%s/%s",
                         kit_bits_checks[k].name, table[n].name, kit_type_name(s->k_type),
                         kit_type_name(s->v_type), kit_type_name(s->q_type));
                kit_add(list, &c);
            }
}
