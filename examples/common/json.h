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

/** object[key]; NULL if it is null, which means the same as its absence. */
const cJSON *json_setting(const cJSON *object, const char *key);

/** Whether the value is this text. */
int json_is_text(const cJSON *value, const char *text);

/** Whether a text, such as a key, ends so. */
int ends_with(const char *text, const char *end);

/** The value as an integer from 0 to 2^53; -1 if it is anything else. */
int64_t json_integer(const cJSON *value);

/** *out = object[key], an integer from least to most. */
heed_status json_get_integer(const cJSON *object, const char *name, const char *key, int64_t least,
                             int64_t most, int64_t *out, heed_error *why);

/** *out = object[key], a number from 0 to most. */
heed_status json_get_number(const cJSON *object, const char *name, const char *key, double most,
                            double *out, heed_error *why);

#endif
