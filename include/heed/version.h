/** @file
 * Heed: version and linkage. */
#ifndef HEED_VERSION_H
#define HEED_VERSION_H

#include <stdint.h>

#define HEED_VERSION_MAJOR 0 /**< of these headers; before 1.0 a minor version may break */
#define HEED_VERSION_MINOR 1 /**< of these headers */
#define HEED_VERSION_PATCH 0 /**< of these headers */
/** The version of these headers, as heed_version tells the library's. */
#define HEED_VERSION_NUMBER \
    ((HEED_VERSION_MAJOR << 16) | (HEED_VERSION_MINOR << 8) | HEED_VERSION_PATCH)

/** @cond */
#if defined(__GNUC__)
#define HEED_API __attribute__((visibility("default")))
#else
#define HEED_API
#endif

#ifdef __cplusplus
#define HEED_BEGIN_C extern "C" {
#define HEED_END_C }
#else
#define HEED_BEGIN_C
#define HEED_END_C
#endif
/** @endcond */

HEED_BEGIN_C

/** The version of the library that is linked: major << 16 | minor << 8 | patch. Compare it with
 * HEED_VERSION_NUMBER, which is the version of these headers. Thread-safe. */
HEED_API uint32_t heed_version(void);

HEED_END_C

#endif
