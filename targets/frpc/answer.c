#include "answer.h"

#include <stdio.h>
#include <stdlib.h>

/* Writes a value with the fewest digits from which the same value can be read back. */
static void print_value(double value, char *buffer, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
}

void answer_expression(const char *text, size_t length, enum notation notation,
                       char answer[ANSWER_SIZE])
{
    struct evaluation result = evaluate(text, length, notation);
    char detail[PRINTABLE_SIZE];

    if (!result.error) {
        print_value(result.value, detail, sizeof detail);
        snprintf(answer, ANSWER_SIZE, ANSWER_PREFIX " %s", detail);
    } else if (result.token_number == 0) {
        snprintf(answer, ANSWER_SIZE, ERROR_PREFIX " %s", result.error);
    } else {
        print_token(&result.token, detail);
        snprintf(answer, ANSWER_SIZE, ERROR_PREFIX " token %zu \"%s\": %s", result.token_number,
                 detail, result.error);
    }
}
