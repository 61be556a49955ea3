// A process group in HCCL's place: it gives the NPU tensors' memory to Gloo, and adds what Gloo lacks (averages, all-to-all
// of lists, several messages as one).
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "shared_memory.h"

class Hccl : public c10d::Backend {
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using Job = c10::intrusive_ptr<c10d::Work>;

 public:
  explicit Hccl(c10::intrusive_ptr<c10d::Backend> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "hccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }
  void shutdown() override {}
  void abort() override {}

  Job broadcast(Tensors& t, const c10d::BroadcastOptions& o) override {
    auto a = cpu(t);
    return gloo_->broadcast(a, o);
  }
  Job allreduce(Tensors& t, const c10d::AllreduceOptions& o) override {
    auto a = cpu(t);
    return averaged(a, o, [&](auto& p) { return gloo_->allreduce(a, p); });
  }
  Job allreduce_coalesced(Tensors& t, const c10d::AllreduceCoalescedOptions& o) override {
    auto a = cpu(t);
    return gloo_->allreduce_coalesced(a, o);
  }
  Job reduce(Tensors& t, const c10d::ReduceOptions& o) override {
    auto a = cpu(t);
    return gloo_->reduce(a, o);
  }
  Job allgather(Lists& r, Tensors& t, const c10d::AllgatherOptions& o) override {
    auto b = cpu(r);
    auto a = cpu(t);
    return gloo_->allgather(b, a, o);
  }
  Job _allgather_base(at::Tensor& r, at::Tensor& t, const c10d::AllgatherOptions& o) override {
    auto b = cpu(r), a = cpu(t);
    return gloo_->_allgather_base(b, a, o);
  }
  Job allgather_into_tensor_coalesced(Tensors& r, Tensors& t, const c10d::AllgatherOptions& o) override {
    auto b = cpu(r), a = cpu(t);
    return gloo_->allgather_into_tensor_coalesced(b, a, o);
  }
  Job gather(Lists& r, Tensors& t, const c10d::GatherOptions& o) override {
    auto b = cpu(r);
    auto a = cpu(t);
    return gloo_->gather(b, a, o);
  }
  Job scatter(Tensors& r, Lists& t, const c10d::ScatterOptions& o) override {
    auto b = cpu(r);
    auto a = cpu(t);
    return gloo_->scatter(b, a, o);
  }
  Job reduce_scatter(Tensors& r, Lists& t, const c10d::ReduceScatterOptions& o) override {
    auto b = cpu(r);
    auto a = cpu(t);
    return averaged(b, o, [&](auto& p) { return gloo_->reduce_scatter(b, a, p); });
  }
  Job _reduce_scatter_base(at::Tensor& r, at::Tensor& t, const c10d::ReduceScatterOptions& o) override {
    auto b = cpu(r), a = cpu(t);
    Tensors results{b};
    return averaged(results, o, [&](auto& p) { return gloo_->_reduce_scatter_base(b, a, p); });
  }
  Job reduce_scatter_tensor_coalesced(Tensors& r, Tensors& t, const c10d::ReduceScatterOptions& o) override {
    auto b = cpu(r), a = cpu(t);
    return averaged(b, o, [&](auto& p) { return gloo_->reduce_scatter_tensor_coalesced(b, a, p); });
  }
  Job alltoall_base(at::Tensor& r, at::Tensor& t, std::vector<int64_t>& to, std::vector<int64_t>& from,
                    const c10d::AllToAllOptions& o) override {
    auto b = cpu(r), a = cpu(t);
    return gloo_->alltoall_base(b, a, to, from, o);
  }
  // One message for each pair.
  Job alltoall(Tensors& r, Tensors& t, const c10d::AllToAllOptions&) override {
    auto b = cpu(r), a = cpu(t);
    std::vector<Job> jobs;
    for (int peer = 0; peer < getSize(); peer++) {
      if (peer == getRank()) {
        b[peer].copy_(a[peer]);
        continue;
      }
      Tensors sent{a[peer]}, received{b[peer]};
      jobs.push_back(gloo_->send(sent, peer, 0));
      jobs.push_back(gloo_->recv(received, peer, 0));
    }
    for (auto& each : jobs) each->wait();
    return gloo_->barrier({});
  }
  Job send(Tensors& t, int to, int tag) override {
    auto a = cpu(t);
    return remembered(gloo_->send(a, to, tag));
  }
  Job recv(Tensors& t, int from, int tag) override {
    auto a = cpu(t);
    return remembered(gloo_->recv(a, from, tag));
  }
  Job recvAnysource(Tensors& t, int tag) override {
    auto a = cpu(t);
    return gloo_->recvAnysource(a, tag);
  }
  Job barrier(const c10d::BarrierOptions&) override { return gloo_->barrier({}); }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { together_ = true; }
  Job endCoalescing() override {
    together_ = false;
    return c10::make_intrusive<All>(std::move(jobs_));
  }

 private:
  struct All : c10d::Work {
    explicit All(std::vector<Job> jobs) : jobs(std::move(jobs)) {}
    bool isCompleted() override {
      return std::all_of(jobs.begin(), jobs.end(), [](auto& job) { return job->isCompleted(); });
    }
    bool wait(std::chrono::milliseconds timeout) override {
      for (auto& job : jobs) job->wait(timeout);
      return true;
    }
    std::vector<Job> jobs;
  };

  static at::Tensor cpu(const at::Tensor& tensor) { return tensor.device().type() == NPU ? on_cpu(tensor) : tensor; }
  static Tensors cpu(const Tensors& tensors) {
    Tensors made;
    for (auto& each : tensors) made.push_back(cpu(each));
    return made;
  }
  static Lists cpu(const Lists& lists) {
    Lists made;
    for (auto& each : lists) made.push_back(cpu(each));
    return made;
  }

  // Gloo has sums only.
  template <class Options, class Run>
  Job averaged(Tensors& results, const Options& options, Run run) {
    if (options.reduceOp != c10d::ReduceOp::AVG) return run(options);
    auto sum = options;
    sum.reduceOp = c10d::ReduceOp::SUM;
    auto done = run(sum);
    done->wait();
    for (auto& each : results) each.div_(getSize());
    return done;
  }
  Job remembered(Job job) {
    if (together_) jobs_.push_back(job);
    return job;
  }

  bool together_ = false;
  std::vector<Job> jobs_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
};
