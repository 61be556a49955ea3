// Command kube is the control plane of Kubernetes 1.34 in one binary: the name
// it is called by chooses the program. `make compat` runs it; the local cluster
// has the newer release in the folder kube.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"kube-apiserver":          func() *cobra.Command { return apiserver.NewAPIServerCommand() },
		"kube-controller-manager": func() *cobra.Command { return controllers.NewControllerManagerCommand() },
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	program := programs[filepath.Base(os.Args[0])]
	if program == nil {
		fmt.Fprintln(os.Stderr, "kube: call it by one of kube-apiserver, kube-controller-manager, kube-scheduler")
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
