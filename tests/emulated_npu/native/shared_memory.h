// A tensor for CPUs on the memory of an NPU tensor, which is the host's (cann.c).
#pragma once
#include <ATen/ATen.h>

constexpr auto NPU = c10::DeviceType::PrivateUse1;

inline at::Tensor on_cpu(const at::Tensor& npu) {
  auto options = at::TensorOptions().dtype(npu.dtype()).device(at::kCPU);
  auto made = at::from_blob(npu.data_ptr(), npu.sizes(), npu.strides(), [npu](void*) {}, options);
  if (npu.is_conj()) made._set_conj(true);
  if (npu.is_neg()) made._set_neg(true);
  return made;
}
