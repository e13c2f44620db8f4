/* Describes the machine, the compiler and the commit. */
#include "machine.h"

#include <heed/heed.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "heed_commit.h"
#include "problem.h"

namespace heed_bench
{

namespace
{

/* The text after the colon in the first line that begins with `key`. */
std::string field(const char *path, const std::string &key)
{
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line))
        if (line.compare(0, key.size(), key) == 0) {
            const size_t colon = line.find(':');
            const size_t first = line.find_first_not_of(" \t", colon + 1);
            return first == std::string::npos ? "" : line.substr(first);
        }
    return "";
}

std::string first_line(const char *path)
{
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string mib(long bytes)
{
    return bytes > 0 ? std::to_string(bytes >> 20) + " MiB" : "unknown";
}

const char *compiler()
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

} // namespace

unsigned usable_cpus()
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return unsigned(CPU_COUNT(&set));
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? unsigned(online) : 1;
}

std::vector<std::pair<std::string, std::string>> machine_context()
{
    struct utsname system = {};
    uname(&system);
    const uint32_t version = heed_version();
    char text[32];
    std::snprintf(text, sizeof text, "%u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
    return {
        {"machine", field("/proc/cpuinfo", "model name")},
        {"machine_family_model",
         field("/proc/cpuinfo", "cpu family") + "/" + field("/proc/cpuinfo", "model\t")},
        {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
        {"usable_cpus", std::to_string(usable_cpus())},
        {"l2", mib(sysconf(_SC_LEVEL2_CACHE_SIZE))},
        {"l3", mib(sysconf(_SC_LEVEL3_CACHE_SIZE))},
        {"rotation", mib(long(rotation_bytes()))},
        {"huge_pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
        {"heed", text},
        {"compiler", compiler()},
        {"commit", HEED_COMMIT},
    };
}

} // namespace heed_bench
