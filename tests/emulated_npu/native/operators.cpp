// Kernels of the emulated NPU: every operator of ATen that torch_npu registers is computed by PyTorch's kernel for CPUs,
// on tensors that share the NPU tensors' memory. Allocation, views, streams and what is not an operator stay torch_npu's.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <set>

#include "hccl.h"
#include "shared_memory.h"

namespace at_npu::detail {
const at::Generator& getDefaultNPUGenerator(c10::DeviceIndex device);
}

namespace {

// The tensors of one call, and where its results go.
struct Call {
  using Pair = std::pair<at::Tensor, at::Tensor>;  // NPU, CPU
  std::vector<Pair> shared;
  std::vector<Pair> resized;  // Empty outputs, to which the kernel gives a size.
  c10::optional<c10::Device> device;
  bool to_cpu = false;

  at::Tensor in(const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || tensor.device().type() != NPU) return tensor;
    if (!device) device = tensor.device();
    for (auto& [npu, cpu] : shared)
      if (npu.is_same(tensor)) return cpu;
    for (auto& [npu, cpu] : resized)
      if (npu.is_same(tensor)) return cpu;
    if (written && tensor.numel() == 0) {
      resized.emplace_back(tensor, at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
      return resized.back().second;
    }
    shared.emplace_back(tensor, on_cpu(tensor));
    return shared.back().second;
  }

  at::Tensor out(const at::Tensor& result) {
    if (!result.defined() || result.device().type() != c10::DeviceType::CPU || to_cpu) return result;
    for (auto& [npu, cpu] : shared) {
      if (cpu.is_same(result)) return npu;
      if (result.storage().unsafeGetStorageImpl() != cpu.storage().unsafeGetStorageImpl()) continue;
      auto bytes = static_cast<char*>(result.data_ptr()) - static_cast<char*>(cpu.data_ptr());
      auto offset = npu.storage_offset() + bytes / static_cast<int64_t>(result.itemsize());
      return at::as_strided(npu, result.sizes(), result.strides(), offset);
    }
    for (auto& [npu, cpu] : resized)
      if (cpu.is_same(result)) return npu;
    auto made = at::empty_strided(result.sizes(), result.strides(), result.options().device(*device));
    if (result.numel()) on_cpu(made).copy_(result);
    return made;
  }

  void in(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      value = in(value.toTensor(), written);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorList()) made.push_back(in(each, written));
      value = made;
    } else if (value.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> made;
      for (c10::optional<at::Tensor> each : value.toOptionalTensorList())
        made.push_back(each ? c10::make_optional(in(*each, written)) : c10::nullopt);
      value = made;
    } else if (value.isDevice()) {
      if (value.toDevice().type() == NPU) {
        device = value.toDevice();
        value = c10::Device(at::kCPU);
      } else {
        to_cpu = true;
      }
    }
  }

  void out(c10::IValue& value) {
    if (value.isTensor()) {
      value = out(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorList()) made.push_back(out(each));
      value = made;
    }
  }
};

// A generator of CPUs that starts at the NPU's seed and offset, and moves that on: saved states keep their meaning.
at::Generator cpu_generator(at::Generator npu) {
  auto made = at::make_generator<at::CPUGeneratorImpl>(npu.current_seed() * 1000003 + npu.get_offset());
  npu.set_offset(npu.get_offset() + 4);
  return made;
}

void compute(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto start = stack->size() - arguments.size();
  Call call;
  for (size_t index = 0; index < arguments.size(); index++) {
    const auto* alias = arguments[index].alias_info();
    call.in((*stack)[start + index], alias && alias->isWrite());
  }
  if (!call.device) call.device = c10::Device(NPU);
  for (size_t index = 0; index < arguments.size(); index++) {
    auto& value = (*stack)[start + index];
    if (value.isGenerator() && value.toGenerator().device().type() == NPU) {
      value = cpu_generator(value.toGenerator());
    } else if (arguments[index].name() == "generator" && value.isNone()) {
      auto device = call.device->has_index() ? *call.device : c10::impl::VirtualGuardImpl(NPU).getDevice();
      value = cpu_generator(at_npu::detail::getDefaultNPUGenerator(device.index()));
    }
  }
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(stack);
  }
  for (auto& [npu, cpu] : call.resized) {
    if (cpu.numel() == 0 && cpu.sizes() == npu.sizes()) continue;
    const_cast<at::Tensor&>(npu).resize_(cpu.sizes());
    on_cpu(npu).copy_(cpu);
  }
  for (size_t index = stack->size() - op.schema().returns().size(); index < stack->size(); index++)
    call.out((*stack)[index]);
}

// PyTorch's derivatives, by the dispatcher; torch_npu's call its operators without it.
void derive(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU).callBoxed(op, keys, stack);
}

// An operator of CANN's that is not emulated: the library would return 0 and leave the result as it was.
void missing(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the emulated NPU has no ", op.schema().name());
}

// What torch_npu computes itself: allocation and views.
const std::set<std::string> KEPT = {
    "aten::as_strided", "aten::as_strided_", "aten::empty", "aten::empty_like", "aten::empty_strided",
    "aten::empty_with_format", "aten::empty_with_swapped_memory", "aten::get_storage_size", "aten::is_pinned",
    "aten::is_set_to", "aten::new_empty_strided", "aten::_pin_memory", "aten::record_stream", "aten::_reshape_alias",
    "aten::resize_", "aten::resize_as_", "aten::set_", "aten::unsafe_empty_with_format", "aten::view",
    "aten::view_as_complex", "aten::view_as_real", "aten::_to_copy", "aten::clone", "aten::_lazy_clone"};

at::Tensor like(const at::Tensor& self, c10::optional<at::MemoryFormat> format, at::TensorOptions options) {
  bool same = self.is_non_overlapping_and_dense() && (!format || *format == at::MemoryFormat::Preserve);
  return same ? at::empty_strided(self.sizes(), self.strides(), options) : at::empty(self.sizes(), options);
}

at::Tensor to_copy(const at::Tensor& self, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
                   c10::optional<at::Device> device, c10::optional<bool>, bool,
                   c10::optional<at::MemoryFormat> format) {
  auto options = at::TensorOptions().dtype(dtype.value_or(self.scalar_type())).device(device.value_or(self.device()));
  return like(self, format, options).copy_(self);
}

at::Tensor clone(const at::Tensor& self, c10::optional<at::MemoryFormat> format) {
  return like(self, format, self.options()).copy_(self);
}

// PyTorch's kernel for CPUs counts no integers, as verl does for tokens of experts (utils/npu_patch.py).
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  auto counts = at::histc(on_cpu(self).to(at::kDouble), bins, min, max);
  auto made = at::empty(counts.sizes(), self.options());
  on_cpu(made).copy_(counts);
  return made;
}

std::vector<std::unique_ptr<torch::Library>> libraries;

torch::Library& library(const std::string& space, c10::DispatchKey key) {
  libraries.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__));
  return *libraries.back();
}

// The operators of a namespace that have a kernel for a key, and their names within it.
std::vector<std::pair<c10::OperatorName, std::string>> registered(const std::string& space, c10::DispatchKey key) {
  std::vector<std::pair<c10::OperatorName, std::string>> found;
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) {
    if (name.name.rfind(space + "::", 0) != 0) continue;
    auto overload = name.overload_name.empty() ? "" : "." + name.overload_name;
    found.emplace_back(name, name.name.substr(space.size() + 2) + overload);
  }
  return found;
}

void install() {
  auto& aten = library("aten", c10::DispatchKey::PrivateUse1);
  for (const auto& [name, rest] : registered("aten", c10::DispatchKey::PrivateUse1)) {
    auto found = c10::Dispatcher::singleton().findSchema(name);
    if (KEPT.count(name.name) || rest == "histc" || !found || !found->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    aten.impl(rest.c_str(), torch::CppFunction::makeFromBoxedFunction<&compute>());
  }
  aten.impl("_to_copy", torch::CppFunction::makeFromUnboxedFunction(&to_copy));
  aten.impl("clone", torch::CppFunction::makeFromUnboxedFunction(&clone));
  aten.impl("histc", torch::CppFunction::makeFromUnboxedFunction(&histc));
  auto& autograd = library("aten", c10::DispatchKey::AutogradPrivateUse1);
  for (const auto& [name, rest] : registered("aten", c10::DispatchKey::AutogradPrivateUse1))
    autograd.impl(rest.c_str(), torch::CppFunction::makeFromBoxedFunction<&derive>());
}

void refuse(const std::string& space, const std::set<std::string>& kept) {
  auto& refused = library(space, c10::DispatchKey::PrivateUse1);
  for (const auto& [name, rest] : registered(space, c10::DispatchKey::PrivateUse1))
    if (!kept.count(rest)) refused.impl(rest.c_str(), torch::CppFunction::makeFromBoxedFunction<&missing>());
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("install", &install, "Compute ATen's operators on CPUs.");
  module.def("refuse", &refuse, "Let every operator of a namespace fail, except for those that are kept.");
  pybind11::module_::import("torch.distributed");
  pybind11::class_<Hccl, c10d::Backend, c10::intrusive_ptr<Hccl>>(module, "Hccl")
      .def(pybind11::init<c10::intrusive_ptr<c10d::Backend>>())
      .def("get_hccl_comm_name", [](Hccl&, int, bool) { return std::string("emulated"); }, pybind11::arg("rank") = 0,
           pybind11::arg("init_comm") = true)
      .def("get_hccl_comm", [](Hccl&, int) { return static_cast<int64_t>(1); })
      .def("set_hccl_comm_name", [](Hccl&, const std::string&) {});
}
