/* Reading numbers from a command line. */
#ifndef NUMBERS_H
#define NUMBERS_H

/* The number that an option wants; exits after a message if it is none. */
unsigned number_or_exit(const char *program, const char *option, const char *text, unsigned most);

#endif
