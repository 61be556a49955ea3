package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	reportPeriod   = 2 * time.Second
	reportDeadline = 10 * time.Second
)

// nodeLabels are those that the Ascend plug-in writes on an Atlas A2 node.
var nodeLabels = map[string]string{
	"accelerator":                      "huawei-Ascend910",
	"servertype":                       "Ascend910B-20",
	"node.kubernetes.io/npu.chip.name": "910B3",
	"mind-cluster/npu-chip-memory":     "64G",
	"workerselector":                   "dls-worker-node",
	"rljob.dev/fake-npus":              "true",
}

// reporter writes to the API what the real plug-in writes: the node's labels
// once, and on each pod which devices it was given. Allocate does not know its
// pod, so the assignment is read back from the kubelet's pod-resources socket.
type reporter struct {
	client      kubernetes.Interface
	node        string
	kubeletRoot string
}

func (r *reporter) run(ctx context.Context) {
	labelled := false
	annotated := map[string]string{}
	for ctx.Err() == nil {
		if !labelled {
			labelled = r.labelNode(ctx) == nil
		}
		if err := r.annotatePods(ctx, annotated); err != nil {
			slog.Debug("pods not annotated", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reportPeriod):
		}
	}
}

func (r *reporter) labelNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportDeadline)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": nodeLabels}})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Nodes().Patch(ctx, r.node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// annotatePods patches each pod whose devices differ from what annotated
// remembers, and forgets the pods that are gone.
func (r *reporter) annotatePods(ctx context.Context, annotated map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, reportDeadline)
	defer cancel()
	assigned, err := r.assignments(ctx)
	if err != nil {
		return err
	}
	for pod := range annotated {
		if _, alive := assigned[pod]; !alive {
			delete(annotated, pod)
		}
	}
	for pod, names := range assigned {
		value := strings.Join(names, ",")
		if annotated[pod] == value {
			continue
		}
		if err := r.annotatePod(ctx, pod, names); err != nil {
			return err
		}
		annotated[pod] = value
	}
	return nil
}

// assignments maps namespace/name of each pod on this node to its devices.
func (r *reporter) assignments(ctx context.Context) (map[string][]string, error) {
	socket := filepath.Join(r.kubeletRoot, "pod-resources", "kubelet.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	listed, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	assigned := map[string][]string{}
	for _, pod := range listed.PodResources {
		for _, container := range pod.Containers {
			for _, device := range container.Devices {
				if device.ResourceName == resourceName {
					key := pod.Namespace + "/" + pod.Name
					assigned[key] = append(assigned[key], device.DeviceIds...)
				}
			}
		}
	}
	for pod, names := range assigned {
		assigned[pod] = sortByIndex(names)
	}
	return assigned, nil
}

type deviceEntry struct {
	ID string `json:"device_id"`
	IP string `json:"device_ip"`
}

func (r *reporter) annotatePod(ctx context.Context, key string, names []string) error {
	namespace, name, _ := strings.Cut(key, "/")
	pods := r.client.CoreV1().Pods(namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var devices []deviceEntry
	for _, device := range names {
		index := strconv.Itoa(physicalIndex(device))
		// 192.0.2.0/24 is the documentation network: no RoCE card can own it.
		devices = append(devices, deviceEntry{ID: index, IP: "192.0.2." + strconv.Itoa(physicalIndex(device)+1)})
	}
	configuration, err := json.Marshal(map[string]any{
		"pod_name": name, "server_id": string(pod.UID), "host_ip": pod.Status.HostIP, "devices": devices,
	})
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, // a new pod of the same name must not get the old one's devices
		"annotations": map[string]string{
			"huawei.com/kltDev":     strings.Join(names, ","),
			"huawei.com/AscendReal": strings.Join(names, ","),
			"ascend.kubectl.kubernetes.io/ascend-910-configuration": string(configuration),
		},
	}})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
