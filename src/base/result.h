// One error type for host code: a stable code for programs and one clear line for people. Cheap when all is well.
#pragma once
#include <string>
#include <utility>
#include <variant>

namespace berth {

struct Error {
  std::string code;     // as in docs/wire-protocol.md: usage, refused, internal ...
  std::string message;  // what was asked, what is there, what to do; no trailing full stop, no prefix
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : value_(std::move(error)) {}
  bool ok() const { return std::holds_alternative<T>(value_); }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<T>(value_); }
  const T& value() const { return std::get<T>(value_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<Error>(value_); }

 private:
  std::variant<T, Error> value_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace berth
