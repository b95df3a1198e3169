//! The descriptors of the whole API: what reflection shows and the JSON door reads.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MethodDescriptor};

/// The encoded `FileDescriptorSet` of every proto of the platform.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.binpb");

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the descriptors are made together with the code and checked in with it")
});

/// The descriptors, decoded once.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// The method behind a path such as `/footplate.api.v1.RunService/GetRun`.
pub(crate) fn method_in(pool: &DescriptorPool, path: &str) -> Option<MethodDescriptor> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    let service = pool.get_service_by_name(service)?;
    service.methods().find(|known| known.name() == method)
}

/// Every method's path.
pub(crate) fn paths_in(pool: &DescriptorPool) -> impl Iterator<Item = String> + '_ {
    pool.services().flat_map(|service| {
        let methods: Vec<String> = service.methods().map(|method| format!("/{}/{}", service.full_name(), method.name())).collect();
        methods
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_found_by_its_own_path() {
        let paths: Vec<String> = paths_in(pool()).collect();
        assert!(paths.contains(&"/footplate.api.v1.RunService/GetRun".to_owned()), "{paths:?}");
        assert!(paths.iter().all(|path| method_in(pool(), path).is_some()));
        assert!(method_in(pool(), "/footplate.api.v1.RunService/Get").is_none());
        assert!(method_in(pool(), "no path").is_none());
    }
}
