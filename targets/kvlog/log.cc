#include "log.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace kvlog
{

Log::Log(const std::string &path, const std::string &own_columns) : path_(path)
{
    if (path.empty())
        return;
    file_.open(path);
    if (!file_)
        throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
    file_ << own_columns
          << ",id,parent,client_address,server_address,request_bytes,response_bytes,"
             "client_send_ns,server_receive_ns,server_send_ns,client_receive_ns\n";
}

void Log::write(const std::string &own, const Header &header)
{
    if (!file_.is_open())
        return;
    std::lock_guard<std::mutex> guard(mutex_);
    file_ << own << ',' << header.id << ',' << header.parent << ','
          << to_string({header.client_ip, header.client_port}) << ','
          << to_string({header.server_ip, header.server_port}) << ',' << header.request_bytes << ','
          << header.response_bytes << ',' << header.client_send_ns << ','
          << header.server_receive_ns << ',' << header.server_send_ns << ','
          << header.client_receive_ns << '\n';
}

void Log::close()
{
    if (!file_.is_open())
        return;
    file_.close();
    if (!file_)
        throw std::runtime_error("cannot write " + path_);
}

} // namespace kvlog
