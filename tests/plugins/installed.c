/* When the folder of installed plugins is looked at: here the one that is named on the command line.
 *
 * Usage: installed EXAMPLE_FOLDER */
#include "fixture.h"
#include "runtime/load.h"

static const char *installed;
static heed_status load(heed_registry *registry, const heed_cpu *cpu, const char *plugin_path,
                        const char *path_from, heed_error *why);

#undef HEED_PLUGIN_FOLDER
#define HEED_PLUGIN_FOLDER installed
#define heed_load_backends load
#include "runtime/load.c"

/* Is the example, which is installed, loaded with this path? */
static int has_example(const char *path)
{
    static heed_registry registry;
    const heed_cpu cpu = {.struct_size = sizeof cpu};
    heed_error why = {""};
    CHECK(load(&registry, &cpu, path, "the test", &why) == HEED_OK, "%s", why.text);
    const int found = heed_registry_find(&registry, "example", 7) != NULL;
    heed_registry_close(&registry);
    return found;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        printf("usage: installed EXAMPLE_FOLDER\n");
        return 2;
    }
    installed = argv[1];
    CHECK(has_example(NULL), "without a path the installed folder is passed over");
    CHECK(has_example("/does/not/exist"), "with a path the installed folder is passed over");
    CHECK(!has_example(""), "with \"\", no plugins, the installed folder is loaded");
    return checks_end();
}
