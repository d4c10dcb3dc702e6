/* The text form of failpoints: "append.copied=kill@3;sync.before=error:EIO". See failpoint.h for its grammar.
 *
 * What holds:
 *  1. A specification is checked entry by entry; at the first bad one parsing ends, the entries before it are armed,
 *     and the problem is said in words. A misspelt point must not become a test that tests nothing.
 *  2. Only the module that owns the failpoints includes this header.
 */
#ifndef ROTA_FAILPOINT_PARSE_H
#define ROTA_FAILPOINT_PARSE_H

#include <fnmatch.h>

#include "rota/failpoint.h"

typedef struct rota_failpoint_errno {
    const char *name;
    int number;
} rota_failpoint_errno;

static const rota_failpoint_errno rota_failpoint_errnos[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM}, {"EFBIG", EFBIG},
    {"EMFILE", EMFILE}, {"ENFILE", ENFILE}, {"EACCES", EACCES}, {"EPERM", EPERM},   {"EROFS", EROFS},
    {"EINTR", EINTR},   {"EAGAIN", EAGAIN}, {"EINVAL", EINVAL}, {"ENOENT", ENOENT}, {"EEXIST", EEXIST},
    {"EBUSY", EBUSY},   {"ENODEV", ENODEV}, {"EFAULT", EFAULT}, {"ESTALE", ESTALE}, {"ETIMEDOUT", ETIMEDOUT},
};

static const char *const rota_failpoint_actions[ROTA_FAILPOINT_ACTIONS] = {"off",  "count", "kill", "stop",
                                                                           "exit", "error", "pause"};

/* A whole number, a negated errno for an errno's name, a status for a status's name. */
ROTA_COLD bool rota_failpoint_argument(const char *text, int action, int *argument)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (*text != 0 && *end == 0 && errno == 0 && number >= INT_MIN / 2 && number <= INT_MAX / 2) {
        *argument = (int)(action == ROTA_FAILPOINT_ERROR && number > 0 ? -number : number);
        return true;
    }
    for (size_t index = 0; index < sizeof rota_failpoint_errnos / sizeof rota_failpoint_errnos[0]; index++) {
        if (strcmp(text, rota_failpoint_errnos[index].name) == 0) {
            *argument = -rota_failpoint_errnos[index].number;
            return true;
        }
    }
    *argument = rota_status_by_name(text);
    return *argument != ROTA_OK;
}

ROTA_COLD int rota_failpoint_action_by_name(const char *name)
{
    for (int action = 0; action < ROTA_FAILPOINT_ACTIONS; action++)
        if (strcmp(name, rota_failpoint_actions[action]) == 0)
            return action;
    return -1;
}

/* Arm every point that the pattern fits ("segment.*"); how many there were. */
ROTA_COLD int rota_failpoints_arm_named(rota_failpoints *failpoints, const char *pattern, int action, uint64_t nth,
                                        int argument)
{
    int fitting = 0;
    for (int place = 0; place < ROTA_FAILPOINT_COUNT; place++) {
        if (fnmatch(pattern, rota_failpoint_name(place), 0) != 0)
            continue;
        rota_failpoint_arm(failpoints, place, action, nth, argument);
        fitting++;
    }
    return fitting;
}

ROTA_COLD int rota_failpoints_parse_entry(rota_failpoints *failpoints, char *entry, rota_error *error)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s", entry);
    char *action_text = strchr(entry, '=');
    if (action_text == NULL)
        return rota_fail(error, ROTA_STATE, NULL, 0, "failpoint without an action: %.100s", whole);
    *action_text++ = 0;
    uint64_t nth = 1;
    char *nth_text = strchr(action_text, '@');
    if (nth_text != NULL) {
        char *end;
        *nth_text++ = 0;
        nth = strtoull(nth_text, &end, 10);
        if (*nth_text < '0' || *nth_text > '9' || *end != 0)
            return rota_fail(error, ROTA_STATE, NULL, 0, "no number after @ in failpoint: %.100s", whole);
    }
    char *argument_text = strchr(action_text, ':');
    if (argument_text != NULL)
        *argument_text++ = 0;
    int action = rota_failpoint_action_by_name(action_text);
    if (action < 0)
        return rota_fail(error, ROTA_STATE, NULL, 0, "unknown action in failpoint: %.100s", whole);
    int argument = action == ROTA_FAILPOINT_ERROR ? -EIO : 0;
    if (argument_text != NULL && !rota_failpoint_argument(argument_text, action, &argument))
        return rota_fail(error, ROTA_STATE, NULL, 0, "unknown argument in failpoint: %.100s", whole);
    if (rota_failpoints_arm_named(failpoints, entry, action, nth, argument) == 0)
        return rota_fail(error, ROTA_STATE, NULL, 0, "unknown failpoint: %.100s", whole);
    return ROTA_OK;
}

/* ROTA_OK, or ROTA_STATE with the problem in error->detail. NULL and "" arm nothing. */
ROTA_COLD int rota_failpoints_parse(rota_failpoints *failpoints, const char *specification, rota_error *error)
{
    while (specification != NULL && *specification != 0) {
        char entry[160];
        size_t length = strcspn(specification, ";");
        if (length >= sizeof entry)
            return rota_fail(error, ROTA_STATE, NULL, 0, "failpoint entry too long: %.100s", specification);
        memcpy(entry, specification, length);
        entry[length] = 0;
        specification += length + (specification[length] == ';');
        if (length == 0)
            continue;
        int status = rota_failpoints_parse_entry(failpoints, entry, error);
        if (status != ROTA_OK)
            return status;
    }
    return ROTA_OK;
}

#endif
