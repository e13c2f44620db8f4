/* Which backends of a folder a registry passes over, because another folder gave one of the name, and
 * which it lists as failures; and that many failures keep no backend out.
 *
 * Usage: replaced EXAMPLE_FOLDER */
#include "fixture.h"
#include "runtime/load.h"
#include "runtime/plugin.h"

static uint32_t named(heed_registry *registry, const char *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < registry->n; i++)
        n += strstr(registry->entry[i].name, part) != NULL;
    return n;
}

/* 40 files that are no backends, then the example, then one file more. */
static void among_failures(const char *folder, const heed_cpu *cpu)
{
    static heed_registry registry;
    heed_error why = {""};
    char name[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "bad_%02d.so", i);
        snprintf(why.text, sizeof why.text, "reason %d", i);
        heed_registry_add_failure(&registry, name, &why);
    }
    heed_plugins_load(&registry, cpu, folder, 0);
    const heed_entry *example = heed_registry_find(&registry, "example", 7);
    CHECK(example && example->usable, "files that are no backends keep the example out");
    heed_registry_add_failure(&registry, "last.so", &why);
    CHECK(registry.n <= HEED_MAX_BACKENDS && named(&registry, "bad_00.so") == 1, "%u entries",
          registry.n);
    const heed_entry *rest = heed_registry_find(&registry, "more files", 10);
    CHECK(rest && !rest->usable && strstr(rest->why.text, "bad_16.so, bad_17.so"), "%s",
          rest ? rest->why.text : "no entry for more files");
    heed_registry_close(&registry);
}

/* As many tables as there is room for; then a file is named all the same. */
static void among_backends(const heed_cpu *cpu)
{
    static heed_registry registry;
    static heed_registry source;
    static char names[HEED_MAX_BACKENDS][8];
    static heed_backend table[HEED_MAX_BACKENDS];
    heed_error why = {""};
    uint32_t n = 0;
    CHECK(heed_registry_add(&source, cpu, heed_naive_backend(), &why) == HEED_OK, "%s", why.text);
    for (; n < HEED_MAX_BACKENDS; n++) {
        table[n] = *source.entry[0].backend;
        snprintf(names[n], sizeof names[n], "n%u", n);
        table[n].name = names[n];
        table[n].n_attn = 1;
        table[n].n_linear = 0;
        if (heed_registry_add(&registry, cpu, &table[n], &why) != HEED_OK)
            break;
    }
    CHECK(n == HEED_MAX_BACKENDS - 1 && strstr(why.text, "already"), "%u, then '%s'", n, why.text);
    heed_registry_add_failure(&registry, "n31.so", &why);
    heed_registry_add_failure(&registry, "n32.so", &why);
    CHECK(registry.n == HEED_MAX_BACKENDS &&
              strstr(registry.entry[HEED_MAX_BACKENDS - 1].why.text, "n31.so, n32.so"),
          "%u: %s", registry.n, registry.entry[registry.n - 1].why.text);
    heed_registry_close(&registry);
    heed_registry_close(&source);
}

int main(int argc, char **argv)
{
    static heed_registry registry;
    const heed_cpu cpu = {.struct_size = sizeof cpu};
    heed_error why = {""};
    if (argc != 2) {
        printf("usage: replaced EXAMPLE_FOLDER\n");
        return 2;
    }
    CHECK(heed_plugins_load_path(&registry, &cpu, argv[1], "the test", &why) == HEED_OK, "%s",
          why.text);
    CHECK(registry.n == 1 && registry.entry[0].usable, "the folder has not just the example");

    heed_plugins_load(&registry, &cpu, argv[1], 0);
    CHECK(registry.n == 1, "an installed example is listed beside the one that replaces it: %s",
          registry.entry[registry.n - 1].why.text);

    /* As if the first were linked in: no folder can replace it. */
    heed_plugins_load(&registry, &cpu, argv[1], 1);
    CHECK(registry.n == 2 && !registry.entry[1].usable &&
              strstr(registry.entry[1].why.text, "is taken"),
          "an example beside one that is linked in is not listed as a failure");
    CHECK(named(&registry, "example") == 2, "the failure does not have the name of its file");

    CHECK(heed_plugins_load_path(&registry, &cpu, argv[1], "the test", &why) == HEED_OK &&
              registry.n == 3,
          "a second folder of the user's with an example is not listed as a failure");
    heed_registry_close(&registry);
    among_failures(argv[1], &cpu);
    among_backends(&cpu);
    return checks_end();
}
