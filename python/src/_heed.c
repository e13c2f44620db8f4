/* The module heed._heed: what the package heed exports, made of the files beside this one. */
#include "docs.h"
#include "heed_py.h"

static PyMethodDef functions[] = {
    {"attention", METHOD(py_attention), METH_FASTCALL | METH_KEYWORDS, DOC_ATTENTION},
    {"varlen", METHOD(py_varlen), METH_FASTCALL | METH_KEYWORDS, DOC_VARLEN},
    {"merge", METHOD(py_merge), METH_FASTCALL | METH_KEYWORDS, DOC_MERGE},
    {"rotary", METHOD(py_rotary), METH_FASTCALL | METH_KEYWORDS, DOC_ROTARY},
    {"explain_arrays", METHOD(py_explain_arrays), METH_FASTCALL | METH_KEYWORDS, ""},
    {"backends_json", backends_json, METH_NOARGS, ""},
    {"hint_threads", hint_threads, METH_O, ""},
    {"setting_now", setting_now, METH_NOARGS, ""},
    {"threads", setting_threads, METH_O, DOC_THREADS},
    {"backend", setting_backend, METH_O, DOC_BACKEND},
    {"segments", METHOD(masks_segments), METH_FASTCALL | METH_KEYWORDS, DOC_SEGMENTS},
    {"chunks", METHOD(masks_chunks), METH_FASTCALL | METH_KEYWORDS, DOC_CHUNKS},
    {"prefix", METHOD(masks_prefix), METH_FASTCALL | METH_KEYWORDS, DOC_PREFIX},
    {"tree", METHOD(masks_tree), METH_FASTCALL | METH_KEYWORDS, DOC_TREE},
    {"blocks", METHOD(masks_blocks), METH_FASTCALL | METH_KEYWORDS, DOC_BLOCKS},
    {0}};

static int module_exec(PyObject *module)
{
    static PyObject *first;
    char version[32];
    if (first) { /* types and settings are per process: another interpreter would share them */
        PyErr_SetString(PyExc_ImportError,
                        "heed can be loaded by one interpreter of a process only");
        return -1;
    }
    snprintf(version, sizeof version, "%u.%u.%u", heed_version() >> 16, heed_version() >> 8 & 255,
             heed_version() & 255);
    if (arrays_init(module) < 0 || context_init(module) < 0 || plan_init(module) < 0 ||
        cache_init(module) < 0 || layer_init(module) < 0 ||
        PyModule_AddStringConstant(module, "__version__", version) < 0)
        return -1;
    first = module;
    return 0;
}

/* It does not say that it needs no GIL: caches count their readers under it. */
static PyModuleDef_Slot slots[] = {{Py_mod_exec, SLOT(module_exec)}, {0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "heed._heed",
                                        .m_doc = "Attention on CPUs; see the package heed.",
                                        .m_size = 0,
                                        .m_methods = functions,
                                        .m_slots = slots};

PyMODINIT_FUNC PyInit__heed(void);

PyMODINIT_FUNC PyInit__heed(void)
{
    return PyModuleDef_Init(&definition);
}
