// Command fakenpu stands in for the Ascend device plug-in of one node: it offers
// huawei.com/Ascend910 devices to the kubelet over the device plug-in API
// v1beta1, labels the node and annotates the pods as the real plug-in does, and
// turns devices unhealthy on request. It holds no hardware: what a container
// gets is the environment that the Ascend runtime would read. With words behind
// the flags, it sends them to the plug-in that listens on the control socket.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	node := flag.String("node", "", "name of the node that this plug-in serves")
	count := flag.Int("npus", 4, "number of devices to offer")
	kubeconfig := flag.String("kubeconfig", "", "client configuration for labels and annotations; empty: that of the pod")
	kubeletRoot := flag.String("kubelet-root", "/var/lib/kubelet", "the kubelet's --root-dir")
	control := flag.String("control", "", "unix socket that takes `healthy|unhealthy DEVICE` and `list`")
	flag.Parse()

	if flag.NArg() > 0 {
		if err := ask(*control, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "fakenpu:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *node, *count, *kubeconfig, *kubeletRoot, *control); err != nil {
		slog.Error("fakenpu ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, node string, count int, kubeconfig, kubeletRoot, control string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	devices := newDevices(count)
	listener, err := listenControl(control)
	if err != nil {
		return err
	}
	go serveControl(ctx, listener, devices)
	reporter := &reporter{client: client, node: node, kubeletRoot: kubeletRoot}
	go reporter.run(ctx)
	return servePlugin(ctx, kubeletRoot, devices)
}
