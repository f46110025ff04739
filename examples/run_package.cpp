// A package of distcompile in C++: runs it on an input of ones, and prints the sum of each result.
//
//   python -c "from distcompile.package import aot_compile; ..."     makes model.dcpkg (docs/howto/export.md)
//   c++ -std=c++17 -I distcompile/include examples/run_package.cpp -o run_package -ldl -pthread
//   ./run_package model.dcpkg
#include <cstdio>

#include "distcompile_package.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: run_package MODEL.dcpkg\n"), 2;
  try {
    distcompile::Package model(argv[1]);
    std::vector<distcompile::Array> inputs = model.inputs();
    for (distcompile::Array& input : inputs) {
      if (input.dtype != "F32") throw distcompile::PackageError(input.name + " is " + input.dtype + ", not F32");
      for (size_t k = 0; k < input.bytes.size() / sizeof(float); ++k) input.data<float>()[k] = 1.0f;
    }
    for (const distcompile::Array& result : model.run(inputs)) {
      double sum = 0;
      for (size_t k = 0; k < result.bytes.size() / sizeof(float); ++k) sum += result.data<float>()[k];
      std::printf("%s %s %.6f\n", result.name.c_str(), result.dtype.c_str(), sum);
    }
  } catch (const distcompile::PackageError& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  return 0;
}
