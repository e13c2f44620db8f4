/* JSON files, read with cJSON. A value that is missing or out of range gives an error message that
 * names the file and the key. */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "file.h"

/** Parses bytes that hold one value and white space; messages use `name` for them. */
heed_status json_parse(const unsigned char *bytes, size_t size, const char *name, cJSON **out,
                       heed_error *why);

/** The value as an integer from 0 to 2^53; -1 if it is anything else. */
int64_t json_integer(const cJSON *value);

/** *out = object[key], an integer from least to most. */
heed_status json_get_integer(const cJSON *object, const char *name, const char *key, int64_t least,
                             int64_t most, int64_t *out, heed_error *why);

/** *out = object[key], a number from 0 to most. */
heed_status json_get_number(const cJSON *object, const char *name, const char *key, double most,
                            double *out, heed_error *why);

#endif
