/* Failpoints: every action, counting to the n-th hit, the text form and its mistakes. */
#include "check.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "rota/failpoint_parse.h"
#include "rota/platform_linux.h"

static rota_platform table;
static rota_failpoints failpoints;
static rota_failpoints *points = &failpoints;

static int parse(const char *text)
{
    rota_error error;
    return rota_failpoints_parse(points, text, &error);
}

static void test_names(void)
{
    static const char *const constants[] = {
#define ENTRY(name, text) #name,
        ROTA_FAILPOINTS(ENTRY)
#undef ENTRY
    };
    for (int place = 0; place < ROTA_FAILPOINT_COUNT; place++) {
        const char *name = rota_failpoint_name(place), *constant = constants[place];
        CHECK_EQUAL(strlen(name), strlen(constant));
        for (size_t at = 0; name[at] != 0; at++)
            CHECK(name[at] == '.' ? constant[at] == '_' : toupper(name[at]) == constant[at]);
        for (int other = 0; other < place; other++)
            CHECK(strcmp(name, rota_failpoint_name(other)) != 0);
    }
    CHECK(rota_failpoint_name(-1) == NULL && rota_failpoint_name(ROTA_FAILPOINT_COUNT) == NULL);
}

static void test_counting(void)
{
    ROTA_FAILPOINT(points, APPEND_COPIED);
    CHECK_EQUAL(points->points[ROTA_AT_APPEND_COPIED].hits, 0);
    CHECK_EQUAL(parse("append.copied=count;sync.*=count@0"), ROTA_OK);
    CHECK_EQUAL(points->armed, 5);
    for (int round = 0; round < 7; round++)
        ROTA_FAILPOINT(points, APPEND_COPIED);
    ROTA_FAILPOINT(points, APPEND_LOCKED);
    CHECK_EQUAL(points->points[ROTA_AT_APPEND_COPIED].hits, 7);
    CHECK_EQUAL(points->points[ROTA_AT_APPEND_LOCKED].hits, 0);
    CHECK_EQUAL(parse("append.copied=count"), ROTA_OK);
    CHECK_EQUAL(points->points[ROTA_AT_APPEND_COPIED].hits, 0);
    CHECK_EQUAL(points->armed, 5);
    CHECK_EQUAL(parse("*=off"), ROTA_OK);
    CHECK_EQUAL(points->armed, 0);
}

static void test_errors(void)
{
    CHECK_EQUAL(parse("sync.before=error@3"), ROTA_OK);
    CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), 0);
    ROTA_FAILPOINT(points, SYNC_BEFORE);
    CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), -EIO);
    CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), 0);
    CHECK_EQUAL(parse("sync.before=error:ENOSPC@0"), ROTA_OK);
    for (int round = 0; round < 3; round++)
        CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), -ENOSPC);
    CHECK_EQUAL(parse("sync.before=error:LOG_FAILED"), ROTA_OK);
    CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), ROTA_LOG_FAILED);
    CHECK_EQUAL(parse("sync.before=error:5"), ROTA_OK);
    CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), -5);
    CHECK_EQUAL(parse("sync.before=off"), ROTA_OK);
    CHECK_EQUAL(ROTA_FAILPOINT_STATUS(points, SYNC_BEFORE), 0);
}

static void hit_ten_times(void *text)
{
    CHECK_EQUAL(parse(text), ROTA_OK);
    for (int round = 0; round < 10; round++)
        ROTA_FAILPOINT(points, CLAIM_CURSOR);
    _exit(99);
}

static void test_ends(void)
{
    char kill_it[] = "claim.cursor=kill@2", exit_it[] = "claim.cursor=exit:7", stop_it[] = "claim.cursor=stop@10";
    int status = ended(hit_ten_times, kill_it);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = ended(hit_ten_times, exit_it);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    pid_t child = fork();
    if (child == 0)
        hit_ten_times(stop_it);
    CHECK_EQUAL(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    CHECK_EQUAL(kill(child, SIGCONT), 0);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 99);
}

static uint32_t passed;

static void *pass(void *unused)
{
    (void)unused;
    ROTA_FAILPOINT(points, LOCK_ACQUIRED);
    rota_fetch_add_u32(&passed, 1);
    return NULL;
}

static void wait_paused(uint32_t count)
{
    while (rota_load_acquire_u32(&points->paused) != count)
        table.sleep(&table, 100000);
}

static void test_pause(void)
{
    pthread_t threads[3];
    for (int release = 0; release < 2; release++) {
        passed = 0;
        CHECK_EQUAL(parse("lock.acquired=pause@0"), ROTA_OK);
        for (int index = 0; index < 3; index++)
            CHECK_EQUAL(pthread_create(&threads[index], NULL, pass, NULL), 0);
        wait_paused(3);
        CHECK_EQUAL(rota_load_acquire_u32(&passed), 0);
        if (release)
            rota_failpoints_release(points);
        else
            CHECK_EQUAL(parse("lock.acquired=off"), ROTA_OK);
        for (int index = 0; index < 3; index++)
            pthread_join(threads[index], NULL);
        CHECK_EQUAL(passed, 3);
        CHECK_EQUAL(points->paused, 0);
    }
    CHECK_EQUAL(parse("*=off"), ROTA_OK);
}

static void test_mistakes(void)
{
    const char *wrong[] = {"append.copied",          "append.copied=",       "append.copied=zap",
                           "append.copide=kill",     "=kill",                "append.copied=kill@",
                           "append.copied=kill@x",   "append.copied=kill@-1", "append.copied=error:EWHAT",
                           "append.copied=exit:one", "nothing.*=count",      "append.copied=error:"};
    for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
        rota_error error = {0};
        CHECK_EQUAL(rota_failpoints_parse(points, wrong[index], &error), ROTA_STATE);
        CHECK(strstr(error.detail, wrong[index]) != NULL);
    }
    char long_one[400];
    memset(long_one, 'a', sizeof long_one);
    long_one[399] = 0;
    CHECK_EQUAL(parse(long_one), ROTA_STATE);
    CHECK_EQUAL(points->armed, 0);
    CHECK_EQUAL(parse(NULL), ROTA_OK);
    CHECK_EQUAL(parse(";;"), ROTA_OK);
    CHECK_EQUAL(parse("append.copied=count;append.zap=kill"), ROTA_STATE); /* what stood before it is armed */
    CHECK_EQUAL(points->armed, 1);
    CHECK_EQUAL(parse("*=off"), ROTA_OK);
}

int main(void)
{
    table = rota_platform_linux();
    failpoints.platform = &table;
    test_names();
    test_counting();
    test_errors();
    test_ends();
    test_pause();
    test_mistakes();
    return 0;
}
