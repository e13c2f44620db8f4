/** @file
 * Heed: the context, which holds threads, memory, backends and cached plans. */
#ifndef HEED_CONTEXT_H
#define HEED_CONTEXT_H

#include <stddef.h>

#include "status.h"

HEED_BEGIN_C

/** A context: threads, memory, backends and cached plans. Counted: plans and layers hold one. */
typedef struct heed_context heed_context;
/** A table of kernels: see heed/backend.h. */
typedef struct heed_backend heed_backend;

/** Levels of a log line. */
enum {
    HEED_LOG_ERROR,   /**< not used yet */
    HEED_LOG_WARNING, /**< not used yet */
    HEED_LOG_INFO     /**< what heed_context_options.verbose asks for */
};

/** Lengths, offsets and block tables are not checked per call: a wrong one is undefined
 * behaviour. For engines that keep them right themselves. */
#define HEED_CONTEXT_TRUST_LENGTHS 1u

/** The caller's own threads. */
typedef struct heed_executor {
    size_t struct_size; /**< sizeof(heed_executor) */
    void *user;         /**< handed to parallel_for */
    uint32_t n_threads; /**< at least 1: parallel_for is called with n of at most this */
    uint32_t reserved;  /**< 0 */
    /** Runs body(arg, i) once for each i < n, in any order, on any threads, one after another if need
     * be, and returns after all of them. A call of which it has run none is HEED_ERR_INVALID. */
    void (*parallel_for)(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg);
} heed_executor;

/**
 * Options of a context. Zero is the default for every member, and every option that is
 * given beats the environment variable named beside it. An empty string counts as given and
 * stands for every backend, the whole CPU, no plugins, no lines. The environment is read
 * once, by heed_context_create.
 */
typedef struct heed_context_options {
    size_t struct_size; /**< sizeof(heed_context_options) */
    /** HEED_NUM_THREADS; else the least of OMP_NUM_THREADS, the affinity mask and the cgroup's
     * cpu.max, rounded up. Where the system denies the OpenMP runtime a thread (RLIMIT_NPROC, pids.max,
     * no memory for its stack), that runtime ends the process. With 1, with an executor, and in runs
     * that are begun for parts, it is not asked for any */
    uint32_t n_threads;
    uint32_t flags;                /**< HEED_CONTEXT_TRUST_LENGTHS */
    const heed_executor *executor; /**< threads to use instead of OpenMP; copied */
    /** HEED_BACKEND: a name or a list in order of preference, such as "avx2,naive". Only those are
     * used. A name that is unknown, or cannot run here, makes every plan fail with a sentence that
     * says why */
    const char *backends;
    /** HEED_MAX_ISA: "baseline", "avx2", "avx512" or "amx"; makes a new CPU act like an old one */
    const char *max_isa;
    /** HEED_PLUGIN_PATH: folders with plugins, absolute, separated by ':'. Every *.so in them is loaded;
     * a folder that does not exist counts as empty. They come before installed ones of the same name;
     * with "" not even installed ones are loaded. The variable is ignored in a set-uid process */
    const char *plugin_path;
    /** HEED_VERBOSE: "plan", "run" or "plan,run": a line per query class of a plan or per call, to
     * log or, if there is none, to stderr. Classes have the numbers of HEED_QUERY_ONE ... in
     * heed/backend.h, from 4 on those of sequences of few keys. Runs that are begun for parts leave no
     * line */
    const char *verbose;
    /** handed to alloc, release and log, which may not call the library: it may hold a lock */
    void *user;
    /** Returns memory aligned to align (a power of two, at least sizeof(void *)), or NULL; called from
     * any thread that calls the library. Weights of 2 MiB and more are asked for with an align of
     * 2 MiB: they gain from huge pages. Both alloc and release are given, or neither */
    void *(*alloc)(void *user, size_t bytes, size_t align);
    /** Takes back what alloc returned for so many bytes */
    void (*release)(void *user, void *p, size_t bytes);
    /** Receives lines without a newline; called from any thread that calls the library */
    void (*log)(void *user, int32_t level, const char *line);
} heed_context_options;

/**
 * Makes a context: once per engine, not per call.
 *
 * options    may be NULL; the strings and the executor in it are copied
 * out        receives the context; written on success only
 * Errors     HEED_ERR_INVALID an unknown max_isa or verbose word, a relative plugin path, a
 *            HEED_NUM_THREADS that is no number above 0, alloc without release; HEED_ERR_ABI an
 *            impossible struct_size, or an unknown tail that is not zero; HEED_ERR_NOMEM
 * Threads    safe. A context may be used by any number of threads at once.
 * Fork       a child may use contexts, plans and layers that it inherits, and make new ones;
 *            without an executor its calls run on one thread. Runs of the parent's other threads do
 *            not go on in it. A fork waits until no other thread is making contexts, plans or
 *            layers, but two seconds at the most: after that the plans cached before stay in the
 *            child's memory unused. A child that loads the library itself, after a parent without it
 *            used GNU's OpenMP, makes its contexts with n_threads 1: that runtime would hang there.
 */
HEED_API heed_status heed_context_create(const heed_context_options *options, heed_context **out);

/** Gives the caller's hold on a context back; NULL is allowed. Plans hold their context, so the
 * order of releases does not matter. Thread-safe. */
HEED_API void heed_context_release(heed_context *context);

/**
 * Adds a backend to this context alone. It is considered by plans made afterwards, and cached plans
 * are forgotten. The table and its strings must outlive the context.
 *
 * Errors     HEED_ERR_ABI another abi or a table too short for this library; HEED_ERR_INVALID a
 *            required member is NULL, or the name is taken or not [a-z0-9_]+ of at most 31
 *            characters; HEED_ERR_NOMEM its open had no memory. A backend whose open refuses for
 *            another reason is added, and shown with it.
 * Threads    safe.
 */
HEED_API heed_status heed_context_register(heed_context *context, const heed_backend *backend);

/**
 * Lists this machine and every backend, with the reason of each that cannot run here.
 *
 * json       0: text for people; 1: one JSON object, whose keys docs/json.md in the sources describes,
 *            as those of the other explanations
 * text       receives at most *bytes bytes, always NUL-terminated if *bytes > 0; NULL asks for
 *            the size
 * bytes      in: the room in text; out: the bytes needed, with the NUL
 * Errors     HEED_ERR_NOMEM text is not NULL and too small: what fits has been written
 * Threads    safe.
 */
HEED_API heed_status heed_context_backends(heed_context *context, uint32_t json, char *text,
                                           size_t *bytes);

/** A backend of a context. The strings live as long as the context. */
typedef struct heed_backend_info {
    size_t struct_size; /**< the caller's: sizeof(heed_backend_info) */
    /** what HEED_BACKEND calls it, or the file of a plugin that is none, or a folder of plugins that
     * cannot be read; "more files" where there are too many of those, with their names in reason */
    const char *name;
    const char *summary; /**< a line for people; "" where there is no table */
    const char *reason;  /**< why it cannot run here; "" if it can */
    /** 1: plans may choose its kernels, except those whose trial failed, see heed_context_trial; 0: see
     * reason. It becomes 0 when the last of its kernels fails */
    uint32_t usable;
    uint32_t n_attn;   /**< kernels of attention, also those that failed */
    uint32_t n_linear; /**< kernels of linear layers, also those that failed */
    uint32_t reserved; /**< 0 */
} heed_backend_info;

/**
 * Tells of one backend what heed_context_backends tells of all, without text to be parsed.
 *
 * index      from 0, in the order in which they were found
 * out        receives it; written on success only
 * Errors     HEED_ERR_INVALID there are not so many backends, which ends a loop, or an argument is NULL;
 *            HEED_ERR_ABI an impossible struct_size
 * Threads    safe.
 */
HEED_API heed_status heed_context_backend(heed_context *context, uint32_t index,
                                          heed_backend_info *out);

/** The result of a kernel's known-answer trial, made before the first plan that
 * wants the kernel. */
enum {
    HEED_TRIAL_NOT_YET, /**< no plan has wanted it */
    HEED_TRIAL_PASSED,
    HEED_TRIAL_FAILED /**< plans of this context choose another */
};

/** A kernel of a backend of a context. The strings live as long as the context. */
typedef struct heed_trial_info {
    size_t struct_size; /**< the caller's: sizeof(heed_trial_info) */
    const char *kernel; /**< its name; one of attention and one of linear layers may share it */
    const char *reason; /**< what its trial found, if it failed; else "" */
    uint32_t linear;    /**< 1: of linear layers; 0: of attention */
    uint32_t trial;     /**< HEED_TRIAL_* */
} heed_trial_info;

/**
 * Tells of one kernel of a backend whether its trial kept it from being chosen: results are right
 * without it, but slower than this machine should be.
 *
 * backend    as index of heed_context_backend
 * kernel     from 0, those of attention first; there are n_attn + n_linear
 * out        receives it; written on success only
 * Errors     HEED_ERR_INVALID there is no such backend or it has not so many kernels, or an argument is
 *            NULL; HEED_ERR_ABI an impossible struct_size
 * Threads    safe.
 */
HEED_API heed_status heed_context_trial(heed_context *context, uint32_t backend, uint32_t kernel,
                                        heed_trial_info *out);

/** A kernel that a plan or a layer uses. The strings live as long as the plan or the layer. */
typedef struct heed_kernel_info {
    size_t struct_size;  /**< the caller's: sizeof(heed_kernel_info) */
    const char *backend; /**< whose kernel it is */
    const char *kernel;  /**< its name in that backend */
} heed_kernel_info;

/**
 * Does work of a run that heed_attn_begin, heed_linear_begin or heed_mha_begin began in the
 * workspace, until none is left to take. The run has ended, and another may be begun in the
 * workspace, when every part that was started has returned.
 *
 * part     less than n_parts; it chooses the scratch memory, so no two at once may be the same
 * Errors   HEED_ERR_INVALID workspace was not begun, or part is out of range; HEED_ERR_BACKEND. The
 *          first error wins, and later parts return it too.
 */
HEED_API heed_status heed_run_part(void *workspace, uint32_t part);

HEED_END_C

#endif
