//! TLS with a real server: whole lives over it, what each mistake is told, and certificates that are rotated.

mod lives;
mod mistakes;
mod rotated;
mod scene;
