/* measure: times the evaluator process by process, for each expression and mode. */
#define _POSIX_C_SOURCE 200809L

#include "frontend.h"
#include "lines.h"
#include "standard_fds.h"
#include "summary.h"
#include "tokens.h"
#include "trial.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODES 6
#define MODES_OF_ALL 3 /* the modes that compare processes, not back ends */

struct options {
    bool wanted[MODES + 1]; /* by mode, from 1 */
    const char *expressions;
    const char *directory;
    const char *evaluator;
    const char *results;
    const char *errors;
};

/* The measurements, and the files for them. */
struct record {
    FILE *results;
    FILE *errors;
    struct samples elapsed_ns[MODES + 1];
    size_t failures[MODES + 1];
};

static const char help[] =
    "Usage: measure -m MODE -e EXPRESSIONS [--dir DIR] [--frpc PATH]\n"
    "               [--results FILE] [--errors FILE]\n"
    "\n"
    "Runs the evaluator as a process of its own for each prefix expression, one a\n"
    "line, and each mode, and times it from before the fork until it has ended.\n"
    "\n"
    "  -m, --mode MODE          the mode of the evaluator, 1 to 6, or all: 1, 2 and 3 in\n"
    "                           turn\n"
    "  -e, --expressions FILE   the expressions\n"
    "      --dir DIR            make a private directory for the input and output\n"
    "                           files in DIR (default: $TMPDIR or /tmp)\n"
    "      --frpc PATH          the evaluator (default: frpc beside measure)\n"
    "      --results FILE       write mode,tokens,elapsed_ns (default: results)\n"
    "      --errors FILE        write mode,line,what of failures (default: errors)\n"
    "  -h, --help               print this help\n"
    "\n"
    "A summary goes to standard error.\n"
    "Exit status: 0 if every expression was answered, 1 if some were not,\n"
    "2 for wrong usage or when reading, writing or starting the evaluator fails.\n";

static _Noreturn void give_up(const char *what, const char *name, const char *why)
{
    fprintf(stderr, "measure: %s %s: %s\n", what, name, why);
    exit(BROKEN);
}

static _Noreturn void usage_error(const char *what, const char *argument)
{
    fprintf(stderr, "measure: %s%s\nTry 'measure --help'.\n", what, argument);
    exit(BROKEN);
}

static void parse_mode(const char *text, bool wanted[MODES + 1])
{
    bool all = strcmp(text, "all") == 0;
    if (!all && (strlen(text) != 1 || *text < '1' || *text > '0' + MODES))
        usage_error("mode is not a number from 1 to 6, or all: ", text);
    for (int mode = 1; mode <= MODES; mode++)
        wanted[mode] = all ? mode <= MODES_OF_ALL : *text == '0' + mode;
}

/* The path of frpc in the directory of this program. */
static const char *default_evaluator(void)
{
    static char path[PATH_MAX];
    static const char name[] = "frpc";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof name);
    if (length < 0)
        give_up("cannot read", "/proc/self/exe", strerror(errno));
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

static const char *default_directory(void)
{
    const char *directory = getenv("TMPDIR");
    return directory && *directory ? directory : "/tmp";
}

static struct options parse_options(int argc, char **argv)
{
    enum { DIRECTORY = 256, EVALUATOR, RESULTS, ERRORS };
    static const struct option known[] = {
        {"mode", required_argument, NULL, 'm'},
        {"expressions", required_argument, NULL, 'e'},
        {"dir", required_argument, NULL, DIRECTORY},
        {"frpc", required_argument, NULL, EVALUATOR},
        {"results", required_argument, NULL, RESULTS},
        {"errors", required_argument, NULL, ERRORS},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.results = "results", .errors = "errors"};
    bool has_mode = false;
    int c;

    while ((c = getopt_long(argc, argv, "m:e:h", known, NULL)) != -1) {
        switch (c) {
        case 'm':
            parse_mode(optarg, options.wanted);
            has_mode = true;
            break;
        case 'e':
            options.expressions = optarg;
            break;
        case DIRECTORY:
            options.directory = optarg;
            break;
        case EVALUATOR:
            options.evaluator = optarg;
            break;
        case RESULTS:
            options.results = optarg;
            break;
        case ERRORS:
            options.errors = optarg;
            break;
        case 'h':
            if (fputs(help, stdout) == EOF || fflush(stdout) == EOF)
                give_up("cannot write", "standard output", strerror(errno));
            exit(ALL_FINE);
        default:
            usage_error("wrong usage", "");
        }
    }
    if (optind < argc)
        usage_error("unexpected argument: ", argv[optind]);
    if (!has_mode || !options.expressions)
        usage_error("-m and -e are required", "");
    if (!options.directory)
        options.directory = default_directory();
    if (!options.evaluator)
        options.evaluator = default_evaluator();
    if (access(options.evaluator, X_OK) < 0)
        give_up("cannot run", options.evaluator, strerror(errno));
    return options;
}

/* Opens a file that the evaluator must not inherit. */
static FILE *open_file(const char *path, const char *access)
{
    FILE *file = fopen(path, access);
    if (!file)
        give_up("cannot open", path, strerror(errno));
    return file;
}

static void close_file(FILE *file, const char *path)
{
    bool failed_before = ferror(file);
    if (fclose(file) == EOF || failed_before)
        give_up("cannot write", path, strerror(errno));
}

static void record_failure(struct record *record, int mode, const struct line *line,
                           const char *what)
{
    fprintf(record->errors, "%d,%lu,%s\n", mode, line->number, what);
    record->failures[mode]++;
}

/* Returns 0, or -1 after a message if measuring cannot go on. */
static int measure_line(const struct bench *bench, int mode, const struct line *line,
                        struct record *record)
{
    if (line->too_long) {
        record_failure(record, mode, line, "the line is too long");
        return 0;
    }
    struct trial trial = run_trial(bench, mode, line);
    if (interrupted() || trial.status == TRIAL_BROKEN)
        return -1;
    if (trial.status == TRIAL_FAILED) {
        record_failure(record, mode, line, trial.failure);
        return 0;
    }
    fprintf(record->results, "%d,%zu,%llu\n", mode, split_tokens(line->text, line->length, NULL, 0),
            (unsigned long long)trial.elapsed_ns);
    if (add_sample(&record->elapsed_ns[mode], trial.elapsed_ns) < 0) {
        fprintf(stderr, "measure: out of memory\n");
        return -1;
    }
    return 0;
}

/*
 * The modes take turns within each expression, so that a change of the machine's speed during the
 * measurement affects all of them alike.
 */
static int measure_all(const struct options *options, const struct bench *bench, FILE *expressions,
                       struct record *record)
{
    static struct line line;
    while (!interrupted() && read_line(expressions, &line)) {
        for (int mode = 1; mode <= MODES && !is_skipped(&line); mode++)
            if (options->wanted[mode] && measure_line(bench, mode, &line, record) < 0)
                return -1;
    }
    if (ferror(expressions)) {
        fprintf(stderr, "measure: cannot read %s: %s\n", options->expressions, strerror(errno));
        return -1;
    }
    return interrupted() ? -1 : 0;
}

static void print_summary(const struct options *options, struct record *record)
{
    fprintf(stderr, "%4s %7s %12s %12s %12s %8s\n", "mode", "n", "median [us]", "IQR [us]",
            "max [us]", "failed");
    for (int mode = 1; mode <= MODES; mode++) {
        struct samples *samples = &record->elapsed_ns[mode];
        if (!options->wanted[mode])
            continue;
        fprintf(stderr, "%4d %7zu", mode, samples->count);
        if (samples->count > 0) {
            struct summary summary = summarise(samples);
            fprintf(stderr, " %12.1f %12.1f %12.1f", summary.median / 1e3,
                    summary.interquartile_range / 1e3, summary.maximum / 1e3);
        } else {
            fprintf(stderr, " %12s %12s %12s", "-", "-", "-");
        }
        fprintf(stderr, " %8zu\n", record->failures[mode]);
    }
}

/* Ends by the caught signal, so that the parent sees that this was not an ordinary end. */
static void pass_on(int number)
{
    if (number == 0)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

int main(int argc, char **argv)
{
    occupy_standard_fds();
    struct options options = parse_options(argc, argv);
    FILE *expressions = open_file(options.expressions, "re");
    struct record record = {
        .results = open_file(options.results, "we"),
        .errors = open_file(options.errors, "we"),
    };
    static struct bench bench;

    fprintf(record.results, "mode,tokens,elapsed_ns\n");
    catch_interrupts();
    if (set_up_bench(&bench, options.directory, options.evaluator) < 0)
        return BROKEN;
    int outcome = measure_all(&options, &bench, expressions, &record);
    clean_up_bench(&bench);

    close_file(record.results, options.results);
    close_file(record.errors, options.errors);
    fclose(expressions);
    print_summary(&options, &record);
    for (int mode = 1; mode <= MODES; mode++)
        free(record.elapsed_ns[mode].value);
    pass_on(interrupted());
    if (outcome < 0)
        return BROKEN;
    return record.failures[1] + record.failures[2] + record.failures[3] > 0 ? SOME_FAILED
                                                                            : ALL_FINE;
}
