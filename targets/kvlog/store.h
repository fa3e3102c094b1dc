// Values by key, under a lock that spins.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace kvlog
{

class SpinLock
{
  public:
    void lock()
    {
        while (taken_.exchange(true, std::memory_order_acquire))
            while (taken_.load(std::memory_order_relaxed))
                __builtin_ia32_pause();
    }
    void unlock()
    {
        taken_.store(false, std::memory_order_release);
    }

  private:
    std::atomic<bool> taken_ = false;
};

class Store
{
  public:
    explicit Store(std::size_t most_bytes) : most_bytes_(most_bytes)
    {
    }

    // False if there would be too much in the store.
    bool write(const std::string &key, const std::string &value);

    // False if there is no such key.
    bool read(const std::string &key, std::string &value);

  private:
    SpinLock lock_;
    std::unordered_map<std::string, std::string> values_;
    std::size_t bytes_ = 0; // of keys and values
    const std::size_t most_bytes_;
};

} // namespace kvlog
