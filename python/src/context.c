/*
 * Contexts. There is one for each combination of threads and backends that was asked for, kept for the
 * life of the process: plans and workspaces are cached in it. Which one a thread uses is the thread's
 * own setting, changed by heed.threads and heed.backend.
 */
#include "heed_py.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct entry {
    struct entry *next;
    heed_context *context; /* NULL until the first call */
    uint32_t n_threads;    /* 0: Heed's choice */
    char backends[256];    /* "": Heed's choice */
} entry;

static entry first; /* the one without settings */
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local entry *current; /* NULL: &first */
static _Thread_local uint32_t hint;  /* threads where the setting names none; 0: none either */
static char plugins[4096];           /* HEED_PLUGIN_PATH and the package's own folder; "": none */

/* The settings that a thread is in, in the order in which it entered them; `current` is what they amount
 * to. A setting may be left before one that was entered later (by tasks of asyncio, say, that take turns
 * on a thread), so none keeps what was current before it. */
typedef struct entered {
    uint64_t setting;     /* which one: its number */
    uint32_t n_threads;   /* 0: leaves them */
    const char *backends; /* "": leaves them; an entry's, which stays */
} entered;

static _Thread_local entered *within; /* freed with the thread */
static _Thread_local int n_within, room_within;
static pthread_key_t within_key;

/* The library's sentences have names of files in them, and what the caller wrote, perhaps cut: they need not
 * be UTF-8, as its JSON is, and show bytes that are none. */
static PyObject *decoded(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

static int raise(PyObject *kind, const char *sentence)
{
    PyObject *text = decoded(sentence);
    if (text)
        PyErr_SetObject(kind, text);
    Py_XDECREF(text);
    return -1;
}

int check(heed_status status)
{
    PyObject *kind;
    const char *sentence = heed_last_error();
    if (status == HEED_OK)
        return 0;
    kind = status == HEED_ERR_INVALID       ? PyExc_ValueError
           : status == HEED_ERR_UNSUPPORTED ? PyExc_NotImplementedError
           : status == HEED_ERR_NOMEM       ? PyExc_MemoryError
                                            : PyExc_RuntimeError;
    return raise(kind, *sentence ? sentence : heed_status_string(status));
}

static entry *entry_found(uint32_t n_threads, const char *backends)
{
    entry *e = &first;
    while (e && (e->n_threads != n_threads || strcmp(e->backends, backends)))
        e = e->next;
    return e;
}

static entry *entry_of(uint32_t n_threads, const char *backends)
{
    entry *e;
    pthread_mutex_lock(&entries_lock);
    e = entry_found(n_threads, backends);
    if (!e && (e = calloc(1, sizeof *e))) {
        e->n_threads = n_threads;
        strncpy(e->backends, backends, sizeof e->backends - 1);
        e->next = first.next;
        first.next = e;
    }
    pthread_mutex_unlock(&entries_lock);
    if (!e)
        PyErr_NoMemory();
    return e;
}

static heed_context *context_new(uint32_t n_threads, const char *backends)
{
    heed_context *context;
    heed_context_options options = {.struct_size = sizeof options, .n_threads = n_threads};
    options.backends = *backends ? backends : NULL;
    options.plugin_path = *plugins ? plugins : NULL;
    return check(heed_context_create(&options, &context)) < 0 ? NULL : context;
}

/* Gives the entry its context, unless another thread was faster. */
static heed_context *context_into(entry *e, heed_context *context)
{
    heed_context *none = NULL;
    if (__atomic_compare_exchange_n(&e->context, &none, context, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return context;
    heed_context_release(context);
    return none;
}

static heed_context *context_of(entry *e)
{
    heed_context *context = __atomic_load_n(&e->context, __ATOMIC_ACQUIRE);
    if (!context && (context = context_new(e->n_threads, e->backends)))
        context = context_into(e, context);
    return context;
}

heed_context *current_context(void)
{
    entry *e = current ? current : &first;
    if (hint && !e->n_threads && !(e = entry_of(hint, e->backends)))
        return NULL;
    return context_of(e);
}

/* A number that tells the settings of a thread from others: entries stay where they are. */
PyObject *setting_now(PyObject *self, PyObject *ignored)
{
    (void)self, (void)ignored;
    return PyLong_FromVoidPtr(current ? current : &first);
}

/* For libraries with a thread number of their own: Heed's calls use as many threads as theirs, so
 * that the OpenMP runtime that both share keeps its threads. */
PyObject *hint_threads(PyObject *self, PyObject *arg)
{
    int64_t n;
    (void)self;
    if (int64_of(arg, "n", 0, &n) < 0)
        return NULL;
    hint = n < 65536 ? (uint32_t)n : 65535;
    Py_RETURN_NONE;
}

bool threads_hinted(void)
{
    return hint != 0;
}

PyObject *text_of(text_function function, const void *object, bool json)
{
    size_t bytes = 0;
    char *text;
    PyObject *result = NULL;
    if (check(function(object, json, NULL, &bytes)) < 0)
        return NULL;
    text = malloc(bytes);
    if (!text)
        return PyErr_NoMemory();
    if (check(function(object, json, text, &bytes)) == 0)
        result = decoded(text);
    free(text);
    return result;
}

static heed_status backends_text(const void *context, uint32_t json, char *text, size_t *bytes)
{
    return heed_context_backends((heed_context *)(uintptr_t)context, json, text, bytes);
}

PyObject *backends_json(PyObject *self, PyObject *ignored)
{
    heed_context *context = current_context();
    (void)self, (void)ignored;
    return context ? text_of(backends_text, context, true) : NULL;
}

/* ---- with heed.threads(2): ---------------------------------------------------------------------------- */

typedef struct setting {
    PyObject_HEAD uint64_t number;
    uint32_t n_threads;
    const char *backends;
} setting;

static PyObject *setting_type;

static PyObject *setting_made(uint32_t n_threads, const char *backends)
{
    static uint64_t last;
    setting *made = (setting *)PyType_GenericAlloc((PyTypeObject *)setting_type, 0);
    if (made) {
        made->number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
        made->n_threads = n_threads;
        made->backends = backends;
    }
    return (PyObject *)made;
}

/* Sets `current` to what the settings amount to: of each kind the last one counts. */
static int settings_apply(void)
{
    uint32_t n_threads = 0;
    const char *backends = "";
    entry *e;
    for (int i = 0; i < n_within; i++) {
        n_threads = within[i].n_threads ? within[i].n_threads : n_threads;
        backends = *within[i].backends ? within[i].backends : backends;
    }
    e = entry_of(n_threads, backends);
    if (!e)
        return -1;
    current = e;
    return 0;
}

/* Tasks of asyncio take turns on a thread, so one may be in as many settings as there are tasks. */
static int room_for_one(void)
{
    const int room = room_within ? 2 * room_within : 8;
    entered *more;
    if (n_within < room_within)
        return 0;
    more = realloc(within, (size_t)room * sizeof *more);
    if (!more) {
        PyErr_NoMemory();
        return -1;
    }
    within = more;
    room_within = room;
    pthread_setspecific(within_key, more);
    return 0;
}

static PyObject *setting_enter(PyObject *object, PyObject *ignored)
{
    const setting *self = (setting *)object;
    (void)ignored;
    if (room_for_one() < 0)
        return NULL;
    within[n_within].setting = self->number;
    within[n_within].n_threads = self->n_threads;
    within[n_within].backends = self->backends;
    n_within++;
    if (settings_apply() < 0) {
        n_within--;
        return NULL;
    }
    Py_INCREF(object);
    return object;
}

static PyObject *setting_exit(PyObject *object, PyObject *args)
{
    const setting *self = (setting *)object;
    int at = n_within;
    (void)args;
    while (at > 0 && within[at - 1].setting != self->number)
        at--;
    if (!at) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has not entered the setting");
        return NULL;
    }
    for (n_within--; at <= n_within; at++)
        within[at - 1] = within[at];
    if (settings_apply() < 0)
        return NULL;
    Py_RETURN_NONE;
}

static void setting_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef setting_methods[] = {{"__enter__", setting_enter, METH_NOARGS, ""},
                                        {"__exit__", setting_exit, METH_VARARGS, ""},
                                        {0}};

static PyType_Slot setting_slots[] = {
    {Py_tp_doc,
     (void *)(uintptr_t) "A context manager: calls of this thread inside it use the setting."},
    {Py_tp_dealloc, SLOT(setting_free)},
    {Py_tp_methods, setting_methods},
    {0, NULL}};

static PyType_Spec setting_spec = {"heed.Setting", sizeof(setting), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   setting_slots};

PyObject *setting_threads(PyObject *self, PyObject *arg)
{
    int64_t n;
    (void)self;
    if (int64_of(arg, "n", 1, &n) < 0)
        return NULL;
    if (n > 65535) {
        PyErr_Format(PyExc_ValueError, "n is %lld, more than 65535", (long long)n);
        return NULL;
    }
    return setting_made((uint32_t)n, "");
}

/* Is the name one of a list with commas? */
static bool in_list(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, name, length))
            return true;
    return false;
}

/* Is one of the backends known, but cannot run here? */
static bool cannot_run(heed_context *context, const char *list)
{
    heed_backend_info info = {.struct_size = sizeof info};
    for (uint32_t i = 0; heed_context_backend(context, i, &info) == HEED_OK; i++)
        if (!info.usable && in_list(list, info.name))
            return true;
    return false;
}

/* The entry of backends that are known and can run here: others raise here and not at the first call
 * inside, and leave nothing behind. */
static entry *entry_of_backends(const char *name)
{
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .qk_dim = 1,
                           .v_dim = 1,
                           .q_type = HEED_F32,
                           .k_type = HEED_F32,
                           .v_type = HEED_F32,
                           .out_type = HEED_F32,
                           .max_batch = 1,
                           .max_q_len = 1,
                           .max_kv_len = 1};
    entry *e;
    heed_context *context;
    heed_status status;
    bool refused;
    pthread_mutex_lock(&entries_lock);
    e = entry_found(0, name);
    pthread_mutex_unlock(&entries_lock);
    if (e)
        return e;
    context = context_new(0, name);
    if (!context)
        return NULL;
    refused = cannot_run(context, name);
    status = heed_attn_supported(context, &desc, NULL);
    if (status == HEED_ERR_INVALID || status == HEED_ERR_NOMEM)
        check(status);
    else if (status != HEED_OK && refused)
        raise(PyExc_ValueError, heed_last_error());
    else /* backends may serve other problems than this one, or linear layers alone */
        e = entry_of(0, name);
    if (e)
        context_into(e, context);
    else
        heed_context_release(context);
    return e;
}

PyObject *setting_backend(PyObject *self, PyObject *arg)
{
    const char *name = PyUnicode_Check(arg) ? characters_of(arg) : NULL;
    const entry *e;
    (void)self;
    if (!name || !*name || strlen(name) >= 256) {
        PyErr_Format(PyExc_ValueError,
                     "the name of a backend, or several with commas, is needed, not %R", arg);
        return NULL;
    }
    e = entry_of_backends(name);
    return e ? setting_made(0, e->backends) : NULL;
}

/* The package brings plugins in a folder beside the module; they follow those of the environment. */
static int find_plugins(PyObject *module)
{
    PyObject *file = PyObject_GetAttrString(module, "__file__");
    PyObject *bytes = file ? PyUnicode_EncodeFSDefault(file) : NULL;
    const char *path = bytes ? PyBytes_AsString(bytes) : NULL;
    const char *more = secure_getenv("HEED_PLUGIN_PATH"), *end; /* NULL in a set-uid process */
    char folder[2048];
    PyErr_Clear(); /* a module without a file has no folder */
    end = path ? strrchr(path, '/') : NULL;
    if (end && path[0] == '/' && end - path < 2000) {
        snprintf(folder, sizeof folder, "%.*s/backends", (int)(end - path), path);
        if (access(folder, R_OK) == 0 &&
            snprintf(plugins, sizeof plugins, "%s%s%s", more ? more : "", more && *more ? ":" : "",
                     folder) >= (int)sizeof plugins)
            plugins[0] = 0; /* no part of a path: the library reads the variable itself */
    }
    Py_XDECREF(bytes);
    Py_XDECREF(file);
    return 0;
}

int context_init(PyObject *module)
{
    setting_type = PyType_FromSpec(&setting_spec);
    if (!setting_type || PyModule_AddObjectRef(module, "Setting", setting_type) < 0)
        return -1;
    if (pthread_key_create(&within_key, free)) {
        PyErr_NoMemory();
        return -1;
    }
    return find_plugins(module);
}
