// The CSV files that both sides write, a line for each RPC.
#pragma once

#include "rpc.h"

#include <fstream>
#include <mutex>
#include <string>

namespace kvlog
{

class Log
{
  public:
    // An empty path is for no log; throws std::runtime_error.
    Log(const std::string &path, const std::string &own_columns);

    // Writes a line: the columns of the program's own, then what the header says.
    void write(const std::string &own, const Header &header);

    // Throws std::runtime_error if not all lines could be written.
    void close();

  private:
    std::string path_;
    std::ofstream file_;
    std::mutex mutex_;
};

} // namespace kvlog
