/* Times, and where most of them are. */
#include <stdint.h>
#include <time.h>

/* 64 buckets for each power of two: nothing is off by more than 1.6 %. */
static uint64_t histogram[64 * 64];

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void record(uint64_t nanoseconds)
{
    int power = nanoseconds < 64 ? 5 : 63 - __builtin_clzll(nanoseconds);
    histogram[nanoseconds < 64 ? nanoseconds : (power - 5) * 64 + ((nanoseconds >> (power - 6)) & 63)]++;
}

static inline double percentile(double part)
{
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < 64 * 64; i++)
        total += histogram[i];
    for (int i = 0; i < 64 * 64 && total; i++) {
        seen += histogram[i];
        if (seen >= part * total) {
            int power = i / 64 + 5;
            return i < 64 ? i : (double)((1ull << power) + ((uint64_t)(i % 64) << (power - 6)));
        }
    }
    return 0;
}
