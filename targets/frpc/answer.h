/* The line of text that answers an expression. */
#ifndef ANSWER_H
#define ANSWER_H

#include "evaluate.h"

#include <stdbool.h>
#include <string.h>

#define ANSWER_PREFIX "ANSWER:"
#define ERROR_PREFIX "ERROR:"

/* Enough for any answer: the longest has a printed token and a fixed message. */
#define ANSWER_SIZE 512

/* text[length] must be a NUL; the answer has no newline. */
void answer_expression(const char *text, size_t length, enum notation notation,
                       char answer[ANSWER_SIZE]);

/* Inline, so that a reader of answers does not have to link the evaluator. */
static inline bool is_answer(const char *line)
{
    return strncmp(line, ANSWER_PREFIX, strlen(ANSWER_PREFIX)) == 0;
}

#endif
