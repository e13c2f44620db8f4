/* Which backends of a folder a registry passes over, because another folder gave one of the name, and
 * which it lists as failures.
 *
 * Usage: replaced EXAMPLE_FOLDER */
#include "fixture.h"
#include "runtime/plugin.h"

static uint32_t named(heed_registry *registry, const char *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < registry->n; i++)
        n += strstr(registry->entry[i].name, part) != NULL;
    return n;
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
    return checks_end();
}
