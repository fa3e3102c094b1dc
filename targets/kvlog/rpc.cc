#include "rpc.h"

#include <arpa/inet.h>
#include <cstring>
#include <ctime>

namespace kvlog
{

const char *name_of(Method method)
{
    switch (method) {
    case Method::ping:
        return "ping";
    case Method::write:
        return "write";
    case Method::read:
        return "read";
    }
    return "unknown";
}

const char *name_of(Status status)
{
    switch (status) {
    case Status::ok:
        return "ok";
    case Status::not_found:
        return "not_found";
    case Status::full:
        return "full";
    case Status::malformed:
        return "malformed";
    }
    return "unknown";
}

std::string to_string(const Address &address)
{
    char text[INET_ADDRSTRLEN] = "";
    in_addr ip = {address.ip};
    inet_ntop(AF_INET, &ip, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(address.port));
}

bool is_sound(const Header &header)
{
    return header.magic == Header::expected_magic && header.request_bytes <= most_body_bytes &&
           header.response_bytes <= most_body_bytes;
}

std::string join(std::string_view key, std::string_view value)
{
    auto key_bytes = static_cast<std::uint32_t>(key.size());
    std::string body(sizeof key_bytes + key.size() + value.size(), '\0');
    char *at = body.data();
    std::memcpy(at, &key_bytes, sizeof key_bytes);
    std::memcpy(at + sizeof key_bytes, key.data(), key.size());
    std::memcpy(at + sizeof key_bytes + key.size(), value.data(), value.size());
    return body;
}

// Not inlined, so that a profile names it: here each byte of a value is copied for the second time.
[[gnu::noinline]] bool split(const std::string &body, std::string &key, std::string &value)
{
    std::uint32_t key_bytes;
    if (body.size() < sizeof key_bytes)
        return false;
    std::memcpy(&key_bytes, body.data(), sizeof key_bytes);
    if (key_bytes > body.size() - sizeof key_bytes)
        return false;
    key.assign(body, sizeof key_bytes, key_bytes);
    value.assign(body, sizeof key_bytes + key_bytes);
    return true;
}

std::uint64_t Clock::now_ns() const
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    auto true_ns = static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
    return static_cast<std::uint64_t>(true_ns + shift_ns_);
}

} // namespace kvlog
