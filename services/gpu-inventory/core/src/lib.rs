//! The pure domain of the gpu-inventory service.
