// Included before everything else in guest code: binds the few glibc functions whose default version is newer than 2.17 to
// their oldest version, so that the library loads wherever the driver does. tests/abi takes the census.
#pragma once
#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlinfo, dlinfo@GLIBC_2.3.3");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_detach, pthread_detach@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver dlinfo, dlinfo@GLIBC_2.17");
__asm__(".symver dladdr, dladdr@GLIBC_2.17");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
__asm__(".symver pthread_detach, pthread_detach@GLIBC_2.17");
#endif
