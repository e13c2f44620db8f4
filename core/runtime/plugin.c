/* Loads plugins. None is ever closed: JIT compilers and OpenMP runtimes crash when they are
 * unloaded. Opening the same file for another context gives the same handle. */
#define _GNU_SOURCE
#include "plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
#include <link.h>
#endif

#include "base/reason.h"

typedef const heed_backend *entry_function(uint32_t host_abi, size_t host_struct_size);

#if defined(__linux__)
/* The program itself is the first that is told of. */
static int has_interpreter(struct dl_phdr_info *program, size_t size, void *found)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++)
        *(int *)found |= program->dlpi_phdr[i].p_type == PT_INTERP;
    return 1;
}
#endif

/* Does an ELF file end before what its program headers say is to be loaded? dlopen maps such a file, which
 * a copy has left that did not end, and then dies of SIGBUS where it reads what is not there. */
static int is_cut_short(int file, off_t bytes)
{
#if defined(__linux__)
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    if (pread(file, &head, sizeof head, 0) != sizeof head ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof part)
        return 0; /* dlopen says what is wrong with it */
    for (int i = 0; i < head.e_phnum; i++) {
        const off_t at = (off_t)head.e_phoff + i * (off_t)sizeof part;
        if (pread(file, &part, sizeof part, at) != sizeof part)
            return 1;
        if (part.p_type == PT_LOAD && part.p_filesz > 0 &&
            (part.p_offset > (uint64_t)bytes || part.p_filesz > (uint64_t)bytes - part.p_offset))
            return 1;
    }
#endif
    (void)file;
    (void)bytes;
    return 0;
}

/* Refuses what dlopen would wait for or die of. What cannot be opened is left to dlopen, which says why. */
static heed_status check_file(const char *path, heed_error *why)
{
    struct stat about;
    heed_status st = HEED_OK;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return HEED_OK;
    if (fstat(file, &about) == 0 && !S_ISREG(about.st_mode))
        st = heed_refuse(why, "%.200s is no regular file", path);
    else if (is_cut_short(file, about.st_size))
        st = heed_refuse(why, "%.200s is cut short", path);
    close(file);
    return st;
}

/* Does the program have the system's dynamic loader? One that is linked with -static has at best a
 * dlopen of its own, which maps a second C library for the plugin; that crashes in its threads. */
static int has_loader(void)
{
    int found = 0;
#if defined(__linux__)
    dl_iterate_phdr(has_interpreter, &found);
#else
    found = 1;
#endif
    return found;
}

/* Names are compared only under this library's abi: of another nobody knows where the name is. */
static int has_name_of(const heed_registry *registry, uint32_t from, uint32_t to,
                       const heed_backend *backend)
{
    if (backend->abi != HEED_BACKEND_ABI || !backend->name)
        return 0;
    for (uint32_t i = from; i < to; i++)
        if (!strcmp(registry->entry[i].name, backend->name))
            return 1;
    return 0;
}

/* Loads a file unless the entries [from, to) have a backend of its name. */
static heed_status load_file(heed_registry *registry, const heed_cpu *cpu, const char *path,
                             uint32_t from, uint32_t to, heed_error *why)
{
    if (!has_loader())
        return heed_refuse(why, "cannot be loaded into a program that is linked with -static");
    if (check_file(path, why) != HEED_OK)
        return HEED_ERR_UNSUPPORTED;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *text = dlerror();
        return heed_refuse(why, "cannot be loaded: %s", text ? text : "no reason given");
    }
    entry_function *entry;
    *(void **)&entry = dlsym(handle, "heed_backend_entry");
    if (!entry)
        return heed_refuse(why, "%.200s has no symbol heed_backend_entry", path);
    const heed_backend *backend = entry(HEED_BACKEND_ABI, sizeof(heed_backend));
    if (!backend)
        return heed_refuse(why, "%.180s does not serve abi %u", path, HEED_BACKEND_ABI);
    return has_name_of(registry, from, to, backend)
               ? HEED_OK
               : heed_registry_add(registry, cpu, backend, why);
}

static int is_plugin(const struct dirent *file)
{
    size_t n = strlen(file->d_name);
    return n > 3 && file->d_name[0] != '.' && !strcmp(file->d_name + n - 3, ".so");
}

void heed_plugins_load(heed_registry *registry, const heed_cpu *cpu, const char *folder,
                       uint32_t others)
{
    const uint32_t own = registry->n;
    struct dirent **file;
    int n = scandir(folder, &file, is_plugin, alphasort);
    if (n < 0 && errno != ENOENT) {
        heed_error why;
        heed_refuse(&why, "as a folder of plugins it cannot be read: %s", strerror(errno));
        heed_registry_add_failure(registry, folder, &why);
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        heed_error why = {""};
        int length = snprintf(path, sizeof path, "%s/%s", folder, file[i]->d_name);
        heed_status st = (size_t)length < sizeof path
                             ? load_file(registry, cpu, path, others, own, &why)
                             : heed_refuse(&why, "its path is longer than %zu bytes", sizeof path);
        if (st != HEED_OK)
            heed_registry_add_failure(registry, file[i]->d_name, &why);
        free(file[i]);
    }
    if (n >= 0)
        free(file);
}

heed_status heed_plugins_load_path(heed_registry *registry, const heed_cpu *cpu, const char *path,
                                   const char *from, heed_error *why)
{
    char folder[4096];
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, ":");
        if (n && at[0] != '/')
            INVALID("%s has the folder '%.*s', an absolute path is required", from,
                    (int)(n < 150 ? n : 150), at);
        if (n >= sizeof folder)
            INVALID("%s has a folder of %zu bytes, at most %zu are possible", from, n,
                    sizeof folder - 1);
        memcpy(folder, at, n);
        folder[n] = 0;
        if (n)
            heed_plugins_load(registry, cpu, folder, registry->n);
        at += n + (at[n] == ':');
    }
    return HEED_OK;
}

/* A file that was loaded by a relative name could by now be another one. */
const char *heed_plugins_installed(const char *folder, char room[HEED_PLUGINS_PATH])
{
    static const char library[] = "/libheed.so", within[] = "/heed/backends";
    char file[PATH_MAX];
    Dl_info here;
    if (!dladdr(library, &here) || here.dli_fname[0] != '/' || !realpath(here.dli_fname, file))
        return folder;
    const char *name = strrchr(file, '/');
    const size_t n = (size_t)(name - file);
    if (strncmp(name, library, sizeof library - 1) != 0 || n + sizeof within > HEED_PLUGINS_PATH)
        return folder;
    memcpy(room, file, n);
    memcpy(room + n, within, sizeof within);
    return room;
}
