// Command coredns is CoreDNS with only the plug-ins that the cluster's Corefile
// names; the released main pulls in every cloud provider and takes ten times as
// long to compile.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// The order in which plug-ins handle a query, as in the released plugin.cfg.
func init() {
	dnsserver.Directives = []string{
		"bind", "health", "ready", "errors", "cache", "kubernetes",
	}
}

func main() { coremain.Run() }
