/* A program that is linked with -static runs what is linked in, and says of a plugin why it has none
 * of it: one that it loaded would bring a second C library, whose threads and memory know nothing of
 * the first's.
 *
 * Usage: static EXAMPLE_FOLDER */
#include "fixture.h"

int main(int argc, char **argv)
{
    heed_context_options options = {.struct_size = sizeof options};
    heed_context *context = NULL;
    if (argc != 2) {
        printf("usage: static EXAMPLE_FOLDER\n");
        return 2;
    }
    options.plugin_path = argv[1];
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("no context: %s\n", heed_last_error());
        return 1;
    }
    char *text = listing(context, 0);
    CHECK(strstr(text, "heed_example.so cannot run here: cannot be loaded into a program") != NULL,
          "the plugin is not listed with the reason:\n%s", text);
    free(text);
    CHECK(run_small(context) == HEED_OK, "what is linked in does not run: %s", heed_last_error());
    heed_context_release(context);
    return checks_end();
}
