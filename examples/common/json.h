/* JSON files, by cJSON: what is missing or out of range is a sentence that names file and key. */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "file.h"

/** Parses bytes, which hold one value and white space; name: what to call it in a sentence. */
heed_status json_parse(const unsigned char *bytes, size_t size, const char *name, cJSON **out,
                       heed_error *why);

/** A number that is an integer from 0 to 2^53; -1 for all else. */
int64_t json_integer(const cJSON *value);

/** *out = object[key], an integer from least to most. */
heed_status json_get_integer(const cJSON *object, const char *name, const char *key, int64_t least,
                             int64_t most, int64_t *out, heed_error *why);

/** *out = object[key], a number from 0 to most. */
heed_status json_get_number(const cJSON *object, const char *name, const char *key, double most,
                            double *out, heed_error *why);

#endif
