/* `heed check`: the conformance kit as a command. */
#ifndef KIT_CHECK_MAIN_H
#define KIT_CHECK_MAIN_H

/** Runs the kit as the arguments say (--help lists them). argv[0] is not looked at. Returns 0 when
 * everything that ran passed or was refused with a reason, 1 when a case failed or none ran, 2 for
 * bad usage. */
int heed_check_main(int argc, char **argv);

#endif
