#define _POSIX_C_SOURCE 200809L

#include "options.h"

#include "frontend.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: frpc -m MODE [-i FILE] [-o FILE] [--notation prefix|postfix]\n"
    "            [--batch N] [--log FILE]\n"
    "\n"
    "Evaluates expressions, one a line, and writes a line for each:\n"
    "\"ANSWER: value\", or \"ERROR: what and where\" if there is no value.\n"
    "Blank lines and lines that start with # are skipped.\n"
    "\n"
    "  -m, --mode MODE     how an expression gets to the evaluator and back:\n"
    "                        1  standard input and output\n"
    "                        2  files; -i and -o are required\n"
    "                        3  a back end process behind two pipes, to which each\n"
    "                           expression makes one round trip\n"
    "                        4  the same, but expressions go there, and answers back,\n"
    "                           in batches: an answer may wait for later expressions\n"
    "                        5  as 3, in shared memory with a futex\n"
    "                        6  as 3, over a Unix socket\n"
    "  -i, --input FILE    read expressions from FILE, not standard input\n"
    "  -o, --output FILE   write answers to FILE, not standard output\n"
    "      --notation N    prefix (the default): operator first, \"+ 1 2\"\n"
    "                      postfix: reverse Polish, operator last, \"1 2 +\"\n"
    "      --batch N       expressions in a batch of mode 4, 1 to 1000 (default: 16)\n"
    "      --log FILE      write a line for each request to the back end, with the\n"
    "                      nanoseconds of CLOCK_MONOTONIC when it began and ended\n"
    "  -h, --help          print this help\n"
    "\n"
    "An expression is made of tokens with white space between them:\n"
    "  numbers             12  -0.5  +3.  .25  6.02e23\n"
    "  constants           pi  e\n"
    "  binary operators    +  -  *  /  ^ (power)\n"
    "  unary operators     ! (factorial)  neg or ~ (unary minus)\n"
    "  functions           sin cos tan asin acos atan (radians)\n"
    "                      exp ln log (base 10) sqrt abs\n"
    "\n"
    "Examples:\n"
    "  echo '+ 1 * 2 3' | frpc -m 1                       ANSWER: 7\n"
    "  echo '1 2 3 * +' | frpc -m 3 --notation postfix    ANSWER: 7\n"
    "\n"
    "Exit status: 0 if every expression has a value, 1 if some have none,\n"
    "2 for wrong usage or when reading, writing or the back end fails.\n";

static _Noreturn void usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("frpc: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\nTry 'frpc --help'.\n", stderr);
    va_end(arguments);
    exit(BROKEN);
}

static _Noreturn void print_help(void)
{
    if (fputs(help, stdout) == EOF || fflush(stdout) == EOF) {
        perror("frpc: cannot write standard output");
        exit(BROKEN);
    }
    exit(ALL_FINE);
}

static enum mode parse_mode(const char *text)
{
    if (strlen(text) != 1 || *text < '1' || *text > '6')
        usage_error("mode '%s' is not a number from 1 to 6", text);
    return (enum mode)(*text - '0');
}

static enum notation parse_notation(const char *text)
{
    if (strcmp(text, "prefix") == 0)
        return PREFIX;
    if (strcmp(text, "postfix") == 0)
        return POSTFIX;
    usage_error("notation '%s' is not prefix or postfix", text);
}

static unsigned parse_batch(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < 1 || number > 1000)
        usage_error("batch '%s' is not a number from 1 to 1000", text);
    return (unsigned)number;
}

struct options parse_options(int argc, char **argv)
{
    enum { NOTATION = 256, BATCH, LOG };
    static const struct option known[] = {
        {"mode", required_argument, NULL, 'm'},    {"input", required_argument, NULL, 'i'},
        {"output", required_argument, NULL, 'o'},  {"notation", required_argument, NULL, NOTATION},
        {"batch", required_argument, NULL, BATCH}, {"log", required_argument, NULL, LOG},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    struct options options = {.notation = PREFIX, .batch = 16};
    bool has_mode = false, has_batch = false;
    int c;

    while ((c = getopt_long(argc, argv, "m:i:o:h", known, NULL)) != -1) {
        switch (c) {
        case 'm':
            options.mode = parse_mode(optarg);
            has_mode = true;
            break;
        case 'i':
            options.input = optarg;
            break;
        case 'o':
            options.output = optarg;
            break;
        case NOTATION:
            options.notation = parse_notation(optarg);
            break;
        case BATCH:
            options.batch = parse_batch(optarg);
            has_batch = true;
            break;
        case LOG:
            options.log = optarg;
            break;
        case 'h':
            print_help();
        default:
            usage_error("wrong usage");
        }
    }
    if (optind < argc)
        usage_error("unexpected argument '%s'", argv[optind]);
    if (!has_mode)
        usage_error("-m is missing");
    if (options.mode == MODE_FILES && (!options.input || !options.output))
        usage_error("mode 2 needs both -i and -o");
    if (has_batch && options.mode != MODE_BATCHES)
        usage_error("--batch is for mode 4");
    if (options.log && options.mode < MODE_PIPES)
        usage_error("--log is for modes with a back end, 3 to 6");
    return options;
}
