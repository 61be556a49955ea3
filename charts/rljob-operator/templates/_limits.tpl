{{- /* What the policies limits, pods and tenants share: the limits of a namespace, and what a pod may contain. */}}

{{- /* The default limits of the release. Those that are not set depend on who creates pods: authors who cannot create
any are held to Pod Security baseline. */}}
{{- define "rljob.limits" -}}
{{- $limits := deepCopy .Values.policies.limits }}
{{- $open := ne .Values.policies.authors "RLJobsOnly" }}
{{- if kindIs "invalid" $limits.hostNetwork }}{{ $_ := set $limits "hostNetwork" $open }}{{ end }}
{{- if kindIs "invalid" $limits.privileged }}{{ $_ := set $limits "privileged" $open }}{{ end }}
{{- if kindIs "invalid" $limits.hostPaths }}{{ $_ := set $limits "hostPaths" ($open | ternary (list "*") list) }}{{ end }}
{{- if kindIs "invalid" $limits.volumes }}
{{- $_ := set $limits "volumes" (list "configMap" "downwardAPI" "emptyDir" "image" "nfs" "persistentVolumeClaim" "projected" "secret") }}
{{- end }}
{{- if kindIs "invalid" $limits.runtimeClasses }}{{ $_ := set $limits "runtimeClasses" (list "*") }}{{ end }}
{{- $limits | toYaml }}
{{- end }}

{{- /* Whether the release itself limits every namespace, as CEL. */}}
{{- define "rljob.limitedByDefault" -}}
{{- $limits := include "rljob.limits" . | fromYaml }}
{{- $all := list "*" }}
{{- $unlimited := and (eq $limits.maxCards "*") $limits.hostNetwork $limits.privileged (kindIs "invalid" .Values.policies.limits.volumes) }}
{{- range $values := list $limits.classes $limits.recipes $limits.images $limits.hostPaths $limits.tolerations $limits.runtimeClasses }}
{{- $unlimited = and $unlimited (eq (toJson $values) (toJson $all)) }}
{{- end }}
{{- or (not $unlimited) (eq .Values.policies.authors "RLJobsOnly") }}
{{- end }}

{{- /* Annotations of the namespace take precedence over the chart's values. Lists contain allowed values; '*' allows everything. */}}
{{- define "rljob.cel.limits" -}}
{{- $limits := include "rljob.limits" . | fromYaml }}
- name: limits
  expression: namespaceObject.metadata.?annotations.orValue({})
# What no limit of its own opens is refused only where there is a limit.
- name: limited
  expression: >-
    {{ include "rljob.limitedByDefault" . }} || variables.limits.exists(k, k.startsWith('limits.rljob.dev/'))
- name: place
  expression: "'namespace ' + request.namespace"
- name: maxCards
  expression: variables.limits[?'limits.rljob.dev/max-cards'].orValue('{{ $limits.maxCards }}').trim()
- name: hostNetwork
  expression: variables.limits[?'limits.rljob.dev/host-network'].orValue('{{ $limits.hostNetwork }}').trim()
- name: privileged
  expression: variables.limits[?'limits.rljob.dev/privileged'].orValue('{{ $limits.privileged }}').trim()
- name: unauthenticatedRay
  expression: variables.limits[?'limits.rljob.dev/unauthenticated-ray'].orValue('{{ $limits.unauthenticatedRay }}').trim()
{{- range $name, $row := dict
  "classes" (list "classes" $limits.classes)
  "recipes" (list "recipes" $limits.recipes)
  "imagesAllowed" (list "images" $limits.images)
  "hostPathsAllowed" (list "host-paths" $limits.hostPaths)
  "tolerationsAllowed" (list "tolerations" $limits.tolerations)
  "runtimeClassesAllowed" (list "runtime-classes" $limits.runtimeClasses)
  "volumesAllowed" (list "volumes" $limits.volumes) }}
- name: {{ $name }}
  expression: >-
    variables.limits[?'limits.rljob.dev/{{ index $row 0 }}']
    .orValue('{{ join "," (index $row 1) }}').split(',').map(x, x.trim())
{{- end }}
{{- end }}

{{- /* The pods of an object that is a pod or contains templates of pods. */}}
{{- define "rljob.cel.pods" -}}
- name: workers
  expression: "variables.me.kind == 'RayCluster' ? variables.me.?spec.?workerGroupSpecs.orValue([]) : []"
- name: templates
  expression: >-
    variables.me.kind == 'RayCluster'
    ? [dyn(variables.me.?spec.?headGroupSpec.?template.orValue({}))] + variables.workers.map(g, g.?template.orValue({}))
    : variables.me.kind in ['Job', 'Deployment'] ? [dyn(variables.me.?spec.?template.orValue({}))] : [variables.me]
# Containers that KubeRay adds to the head.
- name: added
  expression: >-
    variables.me.kind == 'RayCluster'
    ? [variables.me.?spec.?autoscalerOptions, variables.me.?spec.?historyServerOptions.?collectorOptions]
      .filter(o, o.hasValue()).map(o, o.value())
    : []
- name: pods
  expression: >-
    (variables.templates.map(t, {
      'annotations': dyn(t.?metadata.?annotations.orValue({})),
      'spec': dyn(t.?spec.orValue({})),
      'volumes': dyn(t.?spec.?volumes.orValue([])),
      'containers': dyn(t.?spec.?containers.orValue([]) + t.?spec.?initContainers.orValue([])
        + t.?spec.?ephemeralContainers.orValue([]))
    })
    + [{'annotations': dyn({}), 'spec': dyn({}), 'volumes': dyn([]), 'containers': dyn(variables.added)}])
# Except the operator's own, of any version: after an upgrade, clusters of running jobs still have the earlier one.
- name: images
  expression: >-
    variables.pods.map(p,
      (
        p.containers.map(c, string(c.?image.orValue('')))
        + p.volumes.map(v, string(v.?image.?reference.orValue('')))
      ).join(',')
    ).join(',').split(',').filter(i, i != '' && !(['{{ include "rljob.repository" . }}'].exists(e,
      i.startsWith(e + '@') || i.startsWith(e + ':') && !i.substring(size(e) + 1).contains('/'))))
- name: hostPaths
  expression: >-
    variables.pods.map(p, p.volumes.filter(v, !({{ include "rljob.cel.isDriver" . | replace "\n" " " }}))
      .map(v, string(v.?hostPath.?path.orValue(''))).join(',')
    ).join(',').split(',').filter(p, p != '')
{{- end }}

{{- /* Whether a volume `v` of a pod `p` is the node's driver, as the accelerator table states it: read-only, in the
worker's own container, at the path of the node. Whatever else has such a name is not. */}}
{{- define "rljob.cel.isDriver" -}}
string(v.?name.orValue('')).startsWith('rljob-driver-')
&& v.?hostPath.?path.orValue('') + ' ' + v.?hostPath.?type.orValue('') in variables.driverPaths
&& p.containers.all(c,
c.?volumeDevices.orValue([]).all(d, d.?name.orValue('') != v.name)
&& c.?volumeMounts.orValue([]).all(m, m.?name.orValue('') != v.name || (
c.?name.orValue('') == 'ray-worker' && m.?readOnly.orValue(false) && m.?mountPath.orValue('') == v.hostPath.path
&& m.?subPath.orValue('') == '' && m.?subPathExpr.orValue('') == ''
&& m.?mountPropagation.orValue('None') == 'None')))
{{- end }}

{{- /* The paths of the driver of one class of the accelerator table, each with its type, as a list in CEL. */}}
{{- define "rljob.cel.driverPaths" -}}
{{- $paths := list }}
{{- range .hostPaths }}
{{- $paths = append $paths (printf "%s %s" .path .type) }}
{{- end }}
{{- $paths | toJson }}
{{- end }}

{{- /* The resources that are NPUs of some class, as a list in CEL; others of Huawei's device plug-in are found by prefix. */}}
{{- define "rljob.cel.npus" -}}
{{- $names := list }}
{{- range (include "rljob.acceleratorTable" . | fromYaml) }}
{{- if eq (default "npu" .platform) "npu" }}{{ $names = append $names (default "" .resource) }}{{ end }}
{{- end }}
{{- $names | compact | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* Whether the resource `r` is an NPU. Devices of a class of DRA have a prefix too: k8s.io/api v0.36.2,
resource/v1/types.go (ResourceDeviceClassPrefix). */}}
{{- define "rljob.cel.isDevice" -}}
(r.startsWith('huawei.com/') || r in variables.npus)
{{- end }}

{{- /* The devices that a container `c` holds, which is a map of core/v1. A negative number would hide another. */}}
{{- define "rljob.cel.devicesOfContainer" -}}
dyn(c.?resources.?limits.orValue({})).filter(r, {{ include "rljob.cel.isDevice" . }})
.map(r, [0, quantity(string(c.resources.limits[r])).asInteger()].max()).sum()
{{- end }}

{{- /* Whether a pod `p` claims devices by DRA, which cannot be counted. */}}
{{- define "rljob.cel.claimsDevices" -}}
(size(p.spec.?resourceClaims.orValue([])) > 0 || p.containers.exists(c, size(c.?resources.?claims.orValue([])) > 0
|| dyn(c.?resources.?limits.orValue({})).exists(r, r.startsWith('deviceclass.resource.kubernetes.io/'))))
{{- end }}

{{- /* The groups of a RayCluster that have NPUs, as pairs: how many each pod has, and how many pods there are. A group
without replicas counts as one pod, so that it can grow by nothing, and a negative number would hide another group. */}}
{{- define "rljob.cel.npuGroups" -}}
{{- $container := include "rljob.cel.devicesOfContainer" . | replace "\n" " " -}}
([[(dyn({{ . }}).?spec.?headGroupSpec.?template.?spec.?containers.orValue([])
+ dyn({{ . }}).?spec.?headGroupSpec.?template.?spec.?initContainers.orValue([])
+ [dyn({{ . }}).?spec.?autoscalerOptions.orValue({}),
dyn({{ . }}).?spec.?historyServerOptions.?collectorOptions.orValue({})]).map(c, {{ $container }}).sum(), 1]]
+ dyn({{ . }}).?spec.?workerGroupSpecs.orValue([]).map(g, [
(g.?template.?spec.?containers.orValue([]) + g.?template.?spec.?initContainers.orValue([])).map(c, {{ $container }}).sum(),
[1, int(g.?replicas.orValue(1)), int(g.?minReplicas.orValue(0))].max() * [1, int(g.?numOfHosts.orValue(1))].max()
])).filter(g, g[0] > 0)
{{- end }}

{{- /* The parts of a pod that can change after its creation and that a limit judges. */}}
{{- define "rljob.cel.mutablePartsOfPod" -}}
[dyn(dyn({{ . }}).spec.?tolerations.orValue([])),
dyn((dyn({{ . }}).spec.?containers.orValue([]) + dyn({{ . }}).spec.?initContainers.orValue([])).map(c, c.?image.orValue('')))]
{{- end }}

{{- /* The parts of a RayCluster that a limit judges, except its size and what places its pods on nodes. */}}
{{- define "rljob.cel.podsOfRayCluster" -}}
[dyn(dyn({{ . }}).?spec.?autoscalerOptions), dyn(dyn({{ . }}).?spec.?historyServerOptions),
dyn(([dyn({{ . }}).?spec.?headGroupSpec.?template]
+ dyn({{ . }}).?spec.?workerGroupSpecs.orValue([]).map(g, g.?template)).map(t, [
dyn(['containers', 'initContainers', 'volumes', 'securityContext', 'hostNetwork', 'hostPID', 'hostIPC', 'hostUsers',
'resourceClaims', 'nodeName'].map(k, t.?spec[?k])),
dyn(t.?metadata.?annotations.orValue({}).filter(k, k.startsWith('container.apparmor.security.beta.kubernetes.io/')
|| k.contains('seccomp.security.alpha.kubernetes.io/')).map(k, k + '=' + string(t.metadata.annotations[k])))]))]
{{- end }}

{{- /* The labels by which pods count as those of a job, of each pod template of a workload or a Ray object. */}}
{{- define "rljob.cel.templateMarks" -}}
([dyn({{ . }}).?spec.?template.?metadata.?labels.orValue({}),
dyn({{ . }}).?spec.?jobTemplate.?spec.?template.?metadata.?labels.orValue({}),
dyn({{ . }}).?spec.?headGroupSpec.?template.?metadata.?labels.orValue({}),
dyn({{ . }}).?spec.?rayClusterSpec.?headGroupSpec.?template.?metadata.?labels.orValue({}),
dyn({{ . }}).?spec.?rayClusterConfig.?headGroupSpec.?template.?metadata.?labels.orValue({})]
+ (dyn({{ . }}).?spec.?workerGroupSpecs.orValue([]) + dyn({{ . }}).?spec.?rayClusterSpec.?workerGroupSpecs.orValue([])
+ dyn({{ . }}).?spec.?rayClusterConfig.?workerGroupSpecs.orValue([])).map(g, g.?template.?metadata.?labels.orValue({})))
.map(l, [string(l[?'rljob.dev/job'].orValue('')), string(l[?'rljob.dev/job-uid'].orValue(''))])
{{- end }}

{{- /* Whether a pod `p` chooses its devices by an annotation of Ascend's scheduler or device plug-in. */}}
{{- define "rljob.cel.choosesDevices" -}}
p.annotations.exists(k, k in variables.npus || k in {{ include "rljob.cel.deviceAnnotations" . }})
{{- end }}

{{- define "rljob.cel.deviceAnnotations" -}}
['huawei.com/npu', 'huawei.com/AscendReal', 'huawei.com/kltDev', 'predicate-time']
{{- end }}

{{- /* Variables of Ascend Docker Runtime that give a container devices or folders of the node without a request, as in
operator/src/rljob/core/validation/device_variables.py. */}}
{{- define "rljob.cel.takesDevices" -}}
c.?env.orValue([]).exists(e, e.?name.orValue('') in {{ include "rljob.cel.deviceVariables" . }}
&& !({{ include "rljob.cel.statesNoDevices" . }}))
{{- end }}

{{- define "rljob.cel.deviceVariables" -}}
['ASCEND_VISIBLE_DEVICES', 'ASCEND_RUNTIME_OPTIONS', 'ASCEND_RUNTIME_MOUNTS', 'ASCEND_VNPU_SPECS', 'ASCEND_ALLOW_LINK']
{{- end }}

{{- /* Whether the variable `e` states that its container has no devices, as operator/src/rljob/render/device_access.py
writes it: env takes precedence over envFrom and the image. */}}
{{- define "rljob.cel.statesNoDevices" -}}
e.?name.orValue('') == 'ASCEND_VISIBLE_DEVICES' && e.?value.orValue('') == 'void'
{{- end }}

{{- /* Whether a ConfigMap or Secret, whose keys are unknown here, may set such a variable in the container `c`. */}}
{{- define "rljob.cel.mayInheritDevices" -}}
!c.?env.orValue([]).exists(e, {{ include "rljob.cel.statesNoDevices" . }})
&& c.?envFrom.orValue([]).exists(f, {{ include "rljob.cel.deviceVariables" . }}.exists(v, v.startsWith(f.?prefix.orValue(''))))
{{- end }}

{{- /* No container of a pod may inherit devices where cards are counted. `unless`: as above. */}}
{{- define "rljob.cel.inheritance" -}}
{{- $inherits := include "rljob.cel.mayInheritDevices" . | replace "\n" " " }}
- expression: >-
    {{ .unless }}variables.maxCards == '*' && variables.classes == ['*'] && variables.recipes == ['*']
    || !variables.pods.exists(p, p.containers.exists(c, {{ $inherits }}))
  messageExpression: >-
    variables.field + ': ' + variables.pods.map(p, p.containers.filter(c, {{ $inherits }})
      .map(c, 'container ' + string(c.?name.orValue('?'))).join(', ')).filter(s, s != '').join(', ')
    + ': a ConfigMap or Secret of envFrom may set ASCEND_VISIBLE_DEVICES, which takes NPUs without a request, and '
    + variables.place + ' limits the cards of jobs (limits.rljob.dev/max-cards, classes, recipes); '
    + {{ .fix | squote }}
{{- end }}

{{- /* Judgements that need a variable, because their message lists what was found. */}}
{{- define "rljob.cel.judgements" -}}
- name: npus
  expression: >-
    {{ include "rljob.cel.npus" . }}
- name: strangeImages
  expression: >-
    variables.imagesAllowed == ['*'] ? [] : variables.images.filter(i, !variables.imagesAllowed.exists(e, e != '' && (
      i == e || i.startsWith(e.endsWith('/') ? e : e + '/') || i.startsWith(e + '@')
      || i.startsWith(e + ':') && !i.substring(size(e) + 1).contains('/'))))
- name: strangePaths
  expression: >-
    variables.hostPathsAllowed == ['*'] ? [] : variables.hostPaths.filter(p,
      p.contains('..') || !variables.hostPathsAllowed.exists(e, e != '' && (
        p == e || p.startsWith(e.endsWith('/') ? e : e + '/'))))
# host-paths judges volumes of the node.
- name: strangeVolumes
  expression: >-
    !variables.limited || '*' in variables.volumesAllowed ? [] : variables.pods.map(p, p.volumes.filter(v,
      !v.all(k, k in ['name', 'hostPath'] || k.startsWith('$') || k in variables.volumesAllowed))
      .map(v, string(v.?name.orValue('?')) + ' (' + v.filter(k, k != 'name').map(k, string(k)).join(', ') + ')').join(', ')
    ).filter(s, s != '')
# Nodes of the control plane are never meant by '*'. Kubernetes adds tolerations with the prefix node.kubernetes.io/.
- name: anyNode
  expression: >-
    '*' in variables.tolerationsAllowed && 'node-role.kubernetes.io/control-plane' in variables.tolerationsAllowed
- name: strangeTolerations
  expression: >-
    !variables.limited || variables.anyNode ? [] : variables.pods.map(p, (
      p.spec.?tolerations.orValue([]).map(t, string(t.?key.orValue(''))).filter(k,
        !(k in variables.tolerationsAllowed) && !(k in variables.npus) && !k.startsWith('node.kubernetes.io/')
        && (k == '' || k.startsWith('node-role.kubernetes.io/') || !('*' in variables.tolerationsAllowed)))
      .map(k, k == '' ? 'every taint' : 'taint ' + k)
    ).join(', ')).filter(s, s != '')
{{- end }}

{{- /* The folders of a node's system that volumes name, where the limit host-paths is not set: whoever mounts one of
these takes the node. Paths that could be spelt otherwise count too. */}}
{{- define "rljob.cel.systemFolders" -}}
- name: systemFolders
  expression: >-
    {{ not (kindIs "invalid" .Values.policies.limits.hostPaths) }} || 'limits.rljob.dev/host-paths' in variables.limits
    ? [] : variables.hostPaths.filter(p, p.contains('..') || p.contains('//') || p.contains('/./')
      || p.matches('^/?[.]?$|^/(bin|boot|dev|etc|lib(32|64|x32)?|opt/cni|proc|root|run|sbin|snap|sys|usr|var)(/.*)?$|^/opt/?$'))
{{- end }}

{{- define "rljob.cel.systemFoldersValidation" -}}
- expression: size(variables.systemFolders) == 0
  messageExpression: >-
    variables.field + ': hostPath ' + variables.systemFolders.join(', ') + ' is of the system of a node, which only the '
    + 'limit of ' + variables.place + ' opens to jobs (limits.rljob.dev/host-paths); use a folder of data, or a '
    + 'PersistentVolumeClaim'
{{- end }}

{{- /* One validation per check of files/pod-security.yaml, and those of the other limits. `unless`: a condition under
which nothing is judged, as a prefix. */}}
{{- define "rljob.cel.commonValidations" -}}
{{- $unless := .unless }}
- expression: >-
    {{ $unless }}size(variables.strangeImages) == 0
  messageExpression: >-
    {{ .field }} + ': image ' + variables.strangeImages.join(', ') + ': ' + variables.place + ' allows only images of '
    + variables.imagesAllowed.join(', ') + ' (limits.rljob.dev/images); use one of those'
- expression: >-
    {{ $unless }}size(variables.strangePaths) == 0
  messageExpression: >-
    {{ .field }} + ': hostPath ' + variables.strangePaths.join(', ') + ': ' + variables.place + ' allows '
    + (variables.hostPathsAllowed.join('') == '' ? 'no hostPath' : 'only paths below ' + variables.hostPathsAllowed.join(', '))
    + ' (limits.rljob.dev/host-paths); use a PersistentVolumeClaim'
- expression: >-
    {{ $unless }}size(variables.strangeVolumes) == 0
  messageExpression: >-
    {{ .field }} + ': volume ' + variables.strangeVolumes.join(', ') + ': ' + variables.place + ' allows only the types '
    + variables.volumesAllowed.join(', ') + ' (limits.rljob.dev/volumes); use a PersistentVolumeClaim'
- expression: >-
    {{ $unless }}size(variables.strangeTolerations) == 0
  messageExpression: >-
    {{ .field }} + ': tolerations of ' + variables.strangeTolerations.join(', ') + ': ' + variables.place
    + ' allows ' + variables.tolerationsAllowed.join(', ') + ', and nodes of the control plane only by name'
    + ' (limits.rljob.dev/tolerations); remove them'
# A pod with a node of its own bypasses the scheduler, and with it every taint.
- expression: >-
    {{ $unless }}!variables.limited || variables.anyNode || request.operation != 'CREATE'
    || !variables.pods.exists(p, p.spec.?nodeName.orValue('') != '')
  messageExpression: >-
    {{ .field }} + ': nodeName bypasses the taints of nodes, of which ' + variables.place + ' allows '
    + variables.tolerationsAllowed.join(', ') + ' (limits.rljob.dev/tolerations); use nodeSelector'
- expression: >-
    {{ $unless }}variables.maxCards == '*' && variables.classes == ['*']
    || !variables.pods.exists(p, {{ include "rljob.cel.claimsDevices" . | replace "\n" " " }})
  messageExpression: >-
    {{ .field }} + ': resourceClaims and devices of a DeviceClass cannot be counted as cards, which ' + variables.place
    + ' limits (limits.rljob.dev/max-cards, limits.rljob.dev/classes); request devices with workerGroups.devicesPerNode'
- expression: >-
    {{ $unless }}variables.runtimeClassesAllowed == ['*'] || !variables.pods.exists(p,
      !(p.spec.?runtimeClassName.orValue('') in variables.runtimeClassesAllowed + ['']))
  messageExpression: >-
    {{ .field }} + ': runtimeClassName ' + variables.pods.map(p, string(p.spec.?runtimeClassName.orValue('')))
      .filter(n, !(n in variables.runtimeClassesAllowed + [''])).join(', ') + ': ' + variables.place + ' allows '
    + variables.runtimeClassesAllowed.join(', ') + ' (limits.rljob.dev/runtime-classes); use one of them, or none'
{{- range (.root.Files.Get "files/pod-security.yaml" | fromYaml).checks }}
{{- $annotation := eq .limit "hostNetwork" | ternary "host-network" .limit }}
{{- $pod := default "false" .pod | replace "\n" " " }}
{{- $container := default "false" .container | replace "\n" " " }}
# {{ .id }}
- expression: >-
    {{ $unless }}variables.{{ .limit }} == 'true'
    || !variables.pods.exists(p, {{ $pod }}
      || p.containers.exists(c, {{ $container }}))
  messageExpression: >-
    {{ $.field }} + ': ' + variables.pods.map(p, ((({{ $pod }}) ? ['the pod'] : [])
      + p.containers.filter(c, {{ $container }})
        .map(c, 'container ' + string(c.?name.orValue('?')))).join(', ')
    ).filter(s, s != '').join(', ') + ': ' + {{ .says | toJson }} + ': ' + variables.place
    + ' does not allow this (limits.rljob.dev/{{ $annotation }}); {{ eq .limit "hostNetwork" | ternary "use network.mode Pod, and ports of the pod" "remove it" }}'
{{- end }}
{{- end }}
