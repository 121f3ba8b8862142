//! Both ends against the programs of others, as their packages come: OpenSSL, curl, nginx, Python, Go. Without one of them its tests say that
//! they are skipped.

mod common;
mod golang;
mod hostile;
mod nginx;
mod openssl;
mod others;
