/* What the cases of keys and values in codes have in common. */
#ifndef KIT_CASES_CODES_H
#define KIT_CASES_CODES_H

#include "case.h"

enum { KIT_CODES_FIRST = HEED_I8, KIT_CODES_FORMATS = HEED_IQ4_NL - HEED_I8 + 1 };

/** Adds codes/<what>_<k>_<v>/<q>. */
void kit_codes_add(kit_list *list, const char *what, const kit_spec *spec, int quick);

/** Types, and of the others and of scales those that go by n. */
void kit_codes_types(kit_spec *s, uint32_t k, uint32_t v, uint32_t n);

/** Rows of whole blocks of any type, of different lengths. */
void kit_codes_dims(kit_spec *s, uint32_t n);

/** cases_codes_values.c: hidden codes and scales, odd numbers; a part of kit_codes_cases. */
void kit_codes_values_cases(kit_list *list);

#endif
